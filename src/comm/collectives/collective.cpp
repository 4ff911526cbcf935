#include "comm/collectives/collective.hpp"

#include <algorithm>

#include "core/trace.hpp"
#include "device/host/arithmetic.hpp"

namespace ration {
namespace {

// Parts of an operation's messages.
constexpr unsigned kPostingPart = 0;
constexpr unsigned kDataPart = 1;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;     // of a gather or broadcast
constexpr std::size_t kStagingBytes = std::size_t{32} << 20;  // of a reduce
constexpr std::size_t kLeastPiece = 4096;

std::size_t pieces_of(std::size_t whole, std::size_t piece) {
  return (whole + piece - 1) / piece;
}

}  // namespace

CollectiveTask::CollectiveTask(Waiter waiter, const Operation& operation, std::uint64_t number,
                               const char* stream)
    : waiter_(std::move(waiter)), operation_(operation), number_(number), stream_(stream) {}

bool CollectiveTask::operator()(bool may_block) {
  if (phase_ == Phase::post && !post(may_block)) return false;
  if (phase_ == Phase::work && !work(may_block)) return false;
  if (phase_ == Phase::collect && !collect(may_block)) return false;
  return close(may_block);
}

// --- who has what ---

const Posting& CollectiveTask::posting(int peer) const {
  return group().is_near(peer) ? slot(peer).posting : remote_->postings[group().far_index(peer)];
}

CollectiveTask::Part CollectiveTask::part(int rank) const {
  return work::part_of(operation_, rank, size());
}

bool CollectiveTask::sends_to(int peer, const Place& place) const {
  return peer != rank() && (!group().is_near(peer) || !place.readable());
}

bool CollectiveTask::receives_from(int peer, Place Posting::*place) const {
  return peer != rank() && (!group().is_near(peer) || !(posting(peer).*place).readable());
}

bool CollectiveTask::any_messages(Place Posting::*place) const {
  for (int peer = 0; peer < size(); ++peer) {
    if (sends_to(peer, own().posting.*place) || receives_from(peer, place)) return true;
  }
  return false;
}

std::size_t CollectiveTask::near_index() const {
  const auto& near = group().near();
  return static_cast<std::size_t>(std::find(near.begin(), near.end(), rank()) - near.begin());
}

CollectiveTask::Remote& CollectiveTask::remote() {
  if (!remote_) remote_ = std::make_unique<Remote>();
  return *remote_;
}

CollectiveTask::Part CollectiveTask::piece_of(int rank, std::size_t piece) const {
  const Part whole = part(rank);
  const std::size_t begin = std::min(piece * remote_->piece, whole.count);
  return {whole.begin + begin, std::min(remote_->piece, whole.count - begin)};
}

std::byte* CollectiveTask::staged(std::size_t piece, int peer, bool incoming) const {
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t place = (piece % Pieces::kDepth) * 2 * ranks + (incoming ? 0 : ranks) +
                            static_cast<std::size_t>(peer);
  return remote_->staging.data() + place * remote_->piece * size_of(operation_.type);
}

// --- postings ---

// The slot is free again when all near ranks are done with what was in it a ring ago.
bool CollectiveTask::post(bool may_block) {
  group().alarm().check_arriving();
  if (number_ >= kSlots) {
    const auto free = [&](int peer) { return reached(slot(peer).done, number_ - kSlots); };
    if (!waiter_.await_all(
            free, [&] { return "a place for " + what(); }, may_block)) {
      return false;
    }
  }
  Posting& mine = own().posting;
  mine.set(operation_);
  if (!Posting::is_eager(operation_)) {
    const bool scatters = operation_.kind == OperationKind::reduce_scatter;
    const std::size_t shards = scatters ? static_cast<std::size_t>(size()) : 1;
    const bool reduces = scatters || operation_.kind == OperationKind::all_reduce;
    mine.source = group().place(
        operation_.send,
        operation_.count * shards * size_of(reduces ? operation_.send_type : operation_.type));
    if (operation_.kind == OperationKind::all_reduce) {
      mine.target = group().place(operation_.recv, operation_.count * size_of(operation_.type));
    }
  }
  own().post(number_);
  waiter_.notify();
  if (!group().far().empty()) {
    Remote& remote = this->remote();
    remote.postings.resize(group().far().size());
    remote.posting_exchange =
        std::make_unique<Exchange>(waiter_, group().message_tag(number_, kPostingPart));
    for (const int peer : group().far()) {
      remote.posting_exchange->receive(peer, &remote.postings[group().far_index(peer)],
                                       sizeof mine);
      remote.posting_exchange->send(peer, &mine, sizeof mine);
    }
  }
  phase_ = Phase::work;
  return true;
}

bool CollectiveTask::far_posted(bool may_block) {
  if (group().far().empty() || !remote_->posting_exchange) return true;
  const auto near_too = [&](std::vector<int>& missing) {
    const std::vector<int> late =
        waiter_.not_ready([&](int peer) { return reached(slot(peer).posted, number_); });
    missing.insert(missing.end(), late.begin(), late.end());
  };
  if (!remote_->posting_exchange->advance([&] { return what(); }, may_block, near_too))
    return false;
  remote_->posting_exchange.reset();
  for (const int peer : group().far()) {
    waiter_.compare(own().posting, posting(peer), peer, number_);
  }
  return true;
}

bool CollectiveTask::posted_by_all(bool may_block) {
  const auto posted = [&](int peer) { return reached(slot(peer).posted, number_); };
  const auto far_too = [&](std::vector<int>& missing) {
    if (!remote_ || !remote_->posting_exchange) return;
    const std::vector<int> late = remote_->posting_exchange->missing();
    missing.insert(missing.end(), late.begin(), late.end());
  };
  if (!waiter_.await_all(
          posted, [&] { return what(); }, may_block, far_too)) {
    return false;
  }
  for (const int peer : group().near()) {
    waiter_.compare(own().posting, posting(peer), peer, number_);
  }
  return far_posted(may_block);
}

void CollectiveTask::start_pieces(std::size_t pieces, Pieces::Start start, Pieces::Finish finish) {
  remote().pieces = std::make_unique<Pieces>(waiter_, group().message_tag(number_, kDataPart),
                                             pieces, std::move(start), std::move(finish));
}

bool CollectiveTask::advance_pieces(bool may_block) {
  if (!in_pieces()) return true;
  if (!remote_->pieces->advance([&] { return what(); }, may_block)) return false;
  remote_->pieces.reset();
  return true;
}

bool CollectiveTask::work(bool may_block) {
  switch (operation_.kind) {
    case OperationKind::reduce_scatter:
    case OperationKind::all_reduce:
      return reduce(may_block);
    case OperationKind::all_gather:
      return gather(may_block);
    case OperationKind::broadcast:
      return broadcast(may_block);
    default:
      if (!posted_by_all(may_block)) return false;
      finish();
      return true;
  }
}

void CollectiveTask::finish() {
  own().done.store(number_ + 1, std::memory_order_release);
  waiter_.notify();
}

// --- reductions ---

bool CollectiveTask::reduce(bool may_block) {
  if (!in_pieces()) {
    if (!posted_by_all(may_block)) return false;
    if (Posting::is_eager(operation_) || !any_messages(&Posting::source)) {
      sum_own_part();
    } else {
      start_reduce();
    }
  }
  if (!advance_pieces(may_block)) return false;
  if (operation_.kind == OperationKind::reduce_scatter || Posting::is_eager(operation_)) {
    finish();
  } else {
    own().reduced.store(number_ + 1, std::memory_order_release);
    waiter_.notify();
    phase_ = Phase::collect;
  }
  return true;
}

// What the rank sums lies where it can be read.
void CollectiveTask::sum_own_part() {
  const trace::Span span(name_of(operation_.kind).data(), operation_.tag, stream_);
  const Alarm::Reading reading(group().alarm());
  const bool eager = Posting::is_eager(operation_);
  const Part mine = eager ? Part{0, operation_.count} : part(rank());
  thread_local std::vector<const void*> sources;
  sources.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const void* source = eager            ? posting(peer).eager
                         : peer == rank() ? operation_.send
                                          : group().find(posting(peer).source);
    sources.push_back(work::at(source, mine.begin, operation_.send_type));
  }
  void* to = operation_.kind == OperationKind::reduce_scatter
                 ? operation_.recv
                 : work::at(operation_.recv, mine.begin, operation_.type);
  work::sum(operation_, sources, operation_.send_type, to, mine.count);
}

// Piece by piece: to each rank its part of what is here, from each its share of the own part. What
// travels is of the wire's type.
void CollectiveTask::start_reduce() {
  Remote& remote = this->remote();
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t longest = part(0).count;
  const std::size_t budget =
      kStagingBytes / (2 * Pieces::kDepth * ranks * size_of(operation_.type));
  remote.piece = std::max(std::size_t{1}, std::min(std::max(budget, kLeastPiece), longest));
  remote.staging =
      group().staging().take(2 * Pieces::kDepth * ranks * remote.piece * size_of(operation_.type));
  const auto start = [this](std::size_t piece, Exchange& exchange) {
    const std::size_t element = size_of(operation_.type);
    const Part mine = piece_of(rank(), piece);
    for (int peer = 0; peer < size(); ++peer) {
      if (mine.count > 0 && receives_from(peer, &Posting::source)) {
        exchange.receive(peer, staged(piece, peer, true), mine.count * element);
      }
    }
    for (int i = 1; i < size(); ++i) {  // each rank begins elsewhere
      const int peer = (rank() + i) % size();
      const Part theirs = piece_of(peer, piece);
      if (theirs.count > 0 && sends_to(peer, own().posting.source)) {
        exchange.send(peer, outgoing_piece(peer, piece, theirs), theirs.count * element);
      }
    }
  };
  start_pieces(pieces_of(longest, remote.piece), start,
               [this](std::size_t piece) { sum_piece(piece); });
}

const void* CollectiveTask::outgoing_piece(int peer, std::size_t piece, Part elements) const {
  const void* from = work::at(operation_.send, elements.begin, operation_.send_type);
  if (operation_.send_type == operation_.type) return from;
  std::byte* to = staged(piece, peer, false);
  arithmetic().cast(from, operation_.send_type, to, operation_.type, elements.count);
  return to;
}

void CollectiveTask::sum_piece(std::size_t piece) {
  const Part mine = piece_of(rank(), piece);
  if (mine.count == 0) return;
  const trace::Span span(name_of(operation_.kind).data(), operation_.tag, stream_);
  const Alarm::Reading reading(group().alarm());
  std::vector<const void*> sources;
  for (int peer = 0; peer < size(); ++peer) {
    if (receives_from(peer, &Posting::source)) {
      sources.push_back(staged(piece, peer, true));
      continue;
    }
    const void* memory = peer == rank() ? operation_.send : group().find(posting(peer).source);
    const void* from = work::at(memory, mine.begin, operation_.send_type);
    if (operation_.send_type != operation_.type) {  // as the messages' are: rounded already
      std::byte* to = staged(piece, peer, true);
      arithmetic().cast(from, operation_.send_type, to, operation_.type, mine.count);
      from = to;
    }
    sources.push_back(from);
  }
  const bool scatters = operation_.kind == OperationKind::reduce_scatter;
  void* to = scatters ? work::at(operation_.recv, piece * remote_->piece, operation_.recv_type)
                      : work::at(operation_.recv, mine.begin, operation_.type);
  work::sum(operation_, sources, operation_.type, to, mine.count);
}

// all_reduce: takes from each peer the part it has summed.
bool CollectiveTask::collect(bool may_block) {
  if (!in_pieces()) {
    const auto summed = [&](int peer) { return reached(slot(peer).reduced, number_); };
    if (!waiter_.await_all(
            summed, [&] { return what(); }, may_block)) {
      return false;
    }
    {
      const trace::Span span("all_reduce", operation_.tag, stream_);
      const Alarm::Reading reading(group().alarm());
      const auto& near = group().near();
      const std::size_t self = near_index();
      for (std::size_t i = 1; i < near.size(); ++i) {
        const int peer = near[(self + i) % near.size()];
        if (receives_from(peer, &Posting::target)) continue;
        const Part theirs = part(peer);
        const void* memory = group().find(posting(peer).target);
        work::copy(work::at(operation_.recv, theirs.begin, operation_.type),
                   work::at(memory, theirs.begin, operation_.type),
                   theirs.count * size_of(operation_.type));
      }
    }
    if (any_messages(&Posting::target)) start_collect();
  }
  if (!advance_pieces(may_block)) return false;
  finish();
  phase_ = Phase::close;
  return true;
}

void CollectiveTask::start_collect() {
  Remote& remote = this->remote();
  const std::size_t element = size_of(operation_.type);
  remote.piece = kPieceBytes / element;
  const auto start = [this, element](std::size_t piece, Exchange& exchange) {
    const Part mine = piece_of(rank(), piece);
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      const Part theirs = piece_of(peer, piece);
      if (theirs.count > 0 && receives_from(peer, &Posting::target)) {
        exchange.receive(peer, work::at(operation_.recv, theirs.begin, operation_.type),
                         theirs.count * element);
      }
      if (mine.count > 0 && sends_to(peer, own().posting.target)) {
        exchange.send(peer, work::at(operation_.recv, mine.begin, operation_.type),
                      mine.count * element);
      }
    }
  };
  start_pieces(pieces_of(part(0).count, remote.piece), start);
}

// all_reduce: peers read `recv` too, so it is complete only when they are done.
bool CollectiveTask::close(bool may_block) {
  if (phase_ != Phase::close) return true;
  const auto done = [&](int peer) { return reached(slot(peer).done, number_); };
  return waiter_.await_all(
      done, [&] { return what(); }, may_block);
}

// --- gathers ---

// Copies what is there; then waits for the rest.
bool CollectiveTask::gather(bool may_block) {
  if (!far_posted(may_block)) return false;
  const auto posted = [&](int peer) { return reached(slot(peer).posted, number_); };
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  const auto& near = group().near();
  const std::size_t self = near_index();
  for (;;) {
    int missing = -1;
    for (std::size_t i = 1; i <= near.size(); ++i) {  // each rank begins elsewhere; the own last
      const std::size_t place = (self + i) % near.size();
      const int peer = near[place];
      if (copied_[place]) continue;
      if (!posted(peer)) {
        if (missing < 0) missing = peer;
        continue;
      }
      waiter_.compare(own().posting, posting(peer), peer, number_);
      if (!receives_from(peer, &Posting::source)) {
        const trace::Span span("all_gather", operation_.tag, stream_);
        const Alarm::Reading reading(group().alarm());
        const void* from = peer == rank() ? operation_.send : group().find(posting(peer).source);
        work::copy(work::at(operation_.recv, static_cast<std::size_t>(peer) * operation_.count,
                            operation_.type),
                   from, bytes);
      }
      copied_.set(place);
    }
    if (missing < 0) break;
    if (!waiter_.await(
            missing, posted, [&] { return what(); }, may_block)) {
      return false;
    }
  }
  if (!in_pieces() && any_messages(&Posting::source)) start_gather();
  if (!advance_pieces(may_block)) return false;
  finish();
  return true;
}

void CollectiveTask::start_gather() {
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  const auto start = [this, bytes](std::size_t piece, Exchange& exchange) {
    const std::size_t begin = piece * kPieceBytes;
    const std::size_t length = std::min(kPieceBytes, bytes - begin);
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      if (receives_from(peer, &Posting::source)) {
        auto* shard = static_cast<std::byte*>(work::at(
            operation_.recv, static_cast<std::size_t>(peer) * operation_.count, operation_.type));
        exchange.receive(peer, shard + begin, length);
      }
      if (sends_to(peer, own().posting.source)) {
        exchange.send(peer, static_cast<const std::byte*>(operation_.send) + begin, length);
      }
    }
  };
  start_pieces(pieces_of(bytes, kPieceBytes), start);
}

// Only the root's data is needed, but all are waited for: ranks that disagree about the root, each
// content with its own, would go unnoticed.
bool CollectiveTask::broadcast(bool may_block) {
  if (!in_pieces()) {
    if (!posted_by_all(may_block)) return false;
    const int root = operation_.peer;
    const bool eager = Posting::is_eager(operation_);
    if (eager || !receives_from(root, &Posting::source)) {
      const trace::Span span("broadcast", operation_.tag, stream_);
      const Alarm::Reading reading(group().alarm());
      // The root's own send is its recv, or is copied to it by the root alone.
      const void* from = root == rank() ? operation_.send
                         : eager        ? posting(root).eager
                                        : group().find(posting(root).source);
      work::copy(operation_.recv, from, operation_.count * size_of(operation_.type));
    }
    if (!eager && any_messages(&Posting::source)) start_broadcast();
  }
  if (!advance_pieces(may_block)) return false;
  finish();
  return true;
}

void CollectiveTask::start_broadcast() {
  const int root = operation_.peer;
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  const auto start = [this, root, bytes](std::size_t piece, Exchange& exchange) {
    const std::size_t begin = piece * kPieceBytes;
    const std::size_t length = std::min(kPieceBytes, bytes - begin);
    if (root != rank() && receives_from(root, &Posting::source)) {
      exchange.receive(root, static_cast<std::byte*>(operation_.recv) + begin, length);
    }
    for (int peer = 0; root == rank() && peer < size(); ++peer) {
      if (sends_to(peer, own().posting.source)) {
        exchange.send(peer, static_cast<const std::byte*>(operation_.send) + begin, length);
      }
    }
  };
  start_pieces(pieces_of(bytes, kPieceBytes), start);
}

// --- release ---

bool ReleaseTask::is_needed(const Operation& operation, int rank) {
  switch (operation.kind) {
    case OperationKind::reduce_scatter:
    case OperationKind::all_gather:
      return true;
    case OperationKind::broadcast:
      return operation.peer == rank && !Posting::is_eager(operation);
    default:  // a large all_reduce ends when all are done
      return false;
  }
}

bool ReleaseTask::operator()(bool may_block) const {
  RankGroup& group = waiter_.group();
  const auto done = [&](int peer) {
    return peer == waiter_.rank() || reached(group.slot(peer, number_).done, number_);
  };
  const auto what = [&] {
    return "release of " + group.slot(waiter_.rank(), number_).posting.describe(number_);
  };
  return waiter_.await_all(done, what, may_block);
}

}  // namespace ration
