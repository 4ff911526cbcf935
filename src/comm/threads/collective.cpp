#include "comm/threads/collective.hpp"

#include "comm/threads/work.hpp"
#include "core/trace.hpp"

namespace ration {
namespace {

bool reached(const std::atomic<std::uint64_t>& counter, std::uint64_t number) {
  return counter.load(std::memory_order_acquire) > number;
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

// The slot is free again when all ranks are done with what was in it a ring ago.
bool CollectiveTask::post(bool may_block) {
  waiter_.group().alarm().check_arriving();
  constexpr std::uint64_t kRing = ThreadsGroup::kRing;
  if (number_ >= kRing) {
    const auto free = [&](int peer) { return reached(slot(peer).done, number_ - kRing); };
    const auto what = [&] { return "a place for " + describe(operation_, number_); };
    if (!waiter_.await_all(free, what, may_block)) return false;
  }
  own().post(operation_, number_);
  waiter_.notify();
  phase_ = Phase::work;
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
      if (!peers_posted(may_block)) return false;
      finish();
      return true;
  }
}

bool CollectiveTask::peers_posted(bool may_block) {
  const auto posted = [&](int peer) { return reached(slot(peer).posted, number_); };
  const auto what = [&] { return describe(operation_, number_); };
  if (!waiter_.await_all(posted, what, may_block)) return false;
  for (int peer = 0; peer < waiter_.size(); ++peer) {
    waiter_.compare(own(), slot(peer), peer, number_);
  }
  return true;
}

bool CollectiveTask::reduce(bool may_block) {
  if (!peers_posted(may_block)) return false;
  const auto rank = static_cast<std::size_t>(waiter_.rank());
  const trace::Span span(name_of(operation_.kind).data(), operation_.tag, stream_);
  const Alarm::Reading reading(waiter_.group().alarm());
  if (operation_.kind == OperationKind::reduce_scatter) {
    work::sum(waiter_.group(), operation_, number_, rank * operation_.count, operation_.count,
              operation_.recv);
    finish();
  } else if (Slot::is_eager(operation_)) {
    work::sum(waiter_.group(), operation_, number_, 0, operation_.count, operation_.recv);
    finish();
  } else {
    const auto part = work::part_of(operation_, waiter_.rank(), waiter_.size());
    work::sum(waiter_.group(), operation_, number_, part.begin, part.count,
              work::at(operation_.recv, part.begin, operation_.type));
    own().reduced.store(number_ + 1, std::memory_order_release);
    waiter_.notify();
    phase_ = Phase::collect;
  }
  return true;
}

// Copies what is there; then waits for the rest.
bool CollectiveTask::gather(bool may_block) {
  const auto posted = [&](int peer) { return reached(slot(peer).posted, number_); };
  const auto what = [&] { return describe(operation_, number_); };
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  const int size = waiter_.size();
  for (;;) {
    int missing = -1;
    for (int i = 1; i <= size; ++i) {  // each rank begins elsewhere; the own shard last
      const int peer = (waiter_.rank() + i) % size;
      const auto p = static_cast<std::size_t>(peer);
      if (copied_[p]) continue;
      if (!posted(peer)) {
        if (missing < 0) missing = peer;
        continue;
      }
      waiter_.compare(own(), slot(peer), peer, number_);
      const trace::Span span("all_gather", operation_.tag, stream_);
      const Alarm::Reading reading(waiter_.group().alarm());
      work::copy(work::at(operation_.recv, p * operation_.count, operation_.type),
                 slot(peer).source, bytes);
      copied_.set(p);
    }
    if (missing < 0) break;
    if (!waiter_.await(missing, posted, what, may_block)) return false;
  }
  finish();
  return true;
}

// Only the root's data is needed, but all are waited for: ranks that disagree about the root, each
// content with its own, would go unnoticed.
bool CollectiveTask::broadcast(bool may_block) {
  const int root = operation_.peer;
  if (!peers_posted(may_block)) return false;
  const trace::Span span("broadcast", operation_.tag, stream_);
  const Alarm::Reading reading(waiter_.group().alarm());
  // The root's own send is its recv, or is copied to it by the root alone.
  const void* from = root == waiter_.rank() ? operation_.send : slot(root).source;
  work::copy(operation_.recv, from, operation_.count * size_of(operation_.type));
  finish();
  return true;
}

// all_reduce: takes from each peer the part it has summed.
bool CollectiveTask::collect(bool may_block) {
  const auto summed = [&](int peer) { return reached(slot(peer).reduced, number_); };
  const auto what = [&] { return describe(operation_, number_); };
  if (!waiter_.await_all(summed, what, may_block)) return false;
  const trace::Span span("all_reduce", operation_.tag, stream_);
  const Alarm::Reading reading(waiter_.group().alarm());
  for (int i = 1; i < waiter_.size(); ++i) {
    const int peer = (waiter_.rank() + i) % waiter_.size();
    const auto part = work::part_of(operation_, peer, waiter_.size());
    work::copy(work::at(operation_.recv, part.begin, operation_.type),
               work::at(slot(peer).operation.recv, part.begin, operation_.type),
               part.count * size_of(operation_.type));
  }
  own().done.store(number_ + 1, std::memory_order_release);
  waiter_.notify();
  phase_ = Phase::close;
  return true;
}

// all_reduce: peers read `recv` too, so it is complete only when they are done.
bool CollectiveTask::close(bool may_block) {
  if (phase_ != Phase::close) return true;
  const auto done = [&](int peer) { return reached(slot(peer).done, number_); };
  const auto what = [&] { return describe(operation_, number_); };
  return waiter_.await_all(done, what, may_block);
}

void CollectiveTask::finish() {
  own().done.store(number_ + 1, std::memory_order_release);
  waiter_.notify();
}

bool ReleaseTask::operator()(bool may_block) const {
  ThreadsGroup& group = waiter_.group();
  const auto done = [&](int peer) {
    return peer == waiter_.rank() || reached(group.slot(peer, number_).done, number_);
  };
  const auto what = [&] {
    return "release of " + group.slot(waiter_.rank(), number_).describe(number_);
  };
  return waiter_.await_all(done, what, may_block);
}

}  // namespace ration
