#include "comm/collectives/pair.hpp"

#include <fmt/format.h>

#include "comm/collectives/work.hpp"
#include "core/trace.hpp"

namespace ration {
namespace {

// Parts of a send's messages; a collective's are 0 and 1.
constexpr unsigned kPairPosting = 2;
constexpr unsigned kPairData = 3;

Pair* near_pair(const Waiter& waiter, int sender, int receiver) {
  const int peer = sender == waiter.rank() ? receiver : sender;
  return waiter.group().is_near(peer) ? &waiter.group().pair(sender, receiver) : nullptr;
}

}  // namespace

void Outbox::put(int receiver, std::uint64_t number, std::unique_ptr<Exchange> exchange) {
  auto sent = std::make_shared<Sent>();
  sent->exchange = std::move(exchange);
  const std::lock_guard lock(mutex_);
  sent_[{receiver, number}] = std::move(sent);
}

std::shared_ptr<Outbox::Sent> Outbox::find(int receiver, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = sent_.find({receiver, number});
  return found == sent_.end() ? nullptr : found->second;
}

void Outbox::erase(int receiver, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  sent_.erase({receiver, number});
}

PairTask::PairTask(Waiter waiter, std::shared_ptr<Outbox> outbox, const Operation& operation,
                   std::uint64_t number, const char* stream)
    : waiter_(std::move(waiter)),
      outbox_(std::move(outbox)),
      operation_(operation),
      number_(number),
      stream_(stream),
      pair_(operation.kind == OperationKind::send
                ? near_pair(waiter_, waiter_.rank(), operation.peer)
                : near_pair(waiter_, operation.peer, waiter_.rank())) {}

bool PairTask::operator()(bool may_block) {
  return operation_.kind == OperationKind::send ? send(may_block) : receive(may_block);
}

// Posting, or handing over, is all: the receiver reads when it comes.
bool PairTask::send(bool may_block) {
  group().alarm().check_arriving();
  if (number_ >= kPairSlots) {
    const std::uint64_t former = number_ - kPairSlots;
    const auto describe = [&] { return what(); };
    if (!outbox_->advance(operation_.peer, former, describe, may_block)) return false;
    const auto free = [&](int peer) {
      return peer != operation_.peer || reached(received().done, former);
    };
    if (pair_ && !waiter_.await(operation_.peer, free, describe, may_block)) return false;
  }
  hand_over();
  return true;
}

void PairTask::hand_over() {
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  auto exchange = std::make_unique<Exchange>(waiter_, group().message_tag(number_, kPairData));
  if (pair_) {
    Posting& posting = sent().posting;
    posting.set(operation_);
    posting.source = group().place(operation_.send, bytes);
    sent().post(number_);
    waiter_.notify();
    if (posting.source.readable()) return;
  } else {
    auto posting = std::make_shared<Posting>();
    posting->set(operation_);
    exchange->send_owned(operation_.peer, group().message_tag(number_, kPairPosting), posting,
                         sizeof *posting);
  }
  exchange->send(operation_.peer, operation_.send, bytes);
  outbox_->put(operation_.peer, number_, std::move(exchange));
}

bool PairTask::receive(bool may_block) {
  if (phase_ == Phase::post) {
    group().alarm().check_arriving();
    if (pair_) {
      received().posting.set(operation_);  // no one reads it but `compare`
      received().post(number_);
    } else {
      posting_ = std::make_unique<Posting>();
      exchange_ = std::make_unique<Exchange>(waiter_, group().message_tag(number_, kPairPosting));
      exchange_->receive(operation_.peer, posting_.get(), sizeof *posting_);
    }
    phase_ = Phase::match;
  }
  if (phase_ == Phase::match && !match(may_block)) return false;
  if (exchange_ && !exchange_->advance([&] { return what(); }, may_block)) return false;
  if (pair_) {
    received().done.store(number_ + 1, std::memory_order_release);
    waiter_.notify();
  }
  return true;
}

// What the sender has posted is what is wanted here: takes it, or asks for the message.
bool PairTask::match(bool may_block) {
  if (!(pair_ ? match_near(may_block) : match_far(may_block))) return false;
  phase_ = Phase::data;
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  if (pair_ && sent().posting.source.readable()) {
    const trace::Span span("recv", operation_.tag, stream_);
    const Alarm::Reading reading(group().alarm());
    work::copy(operation_.recv, group().find(sent().posting.source), bytes);
    return true;
  }
  exchange_ = std::make_unique<Exchange>(waiter_, group().message_tag(number_, kPairData));
  exchange_->receive(operation_.peer, operation_.recv, bytes);
  return true;
}

bool PairTask::match_near(bool may_block) {
  const auto posted = [&](int peer) {
    return peer != operation_.peer || reached(sent().posted, number_);
  };
  if (!waiter_.await(
          operation_.peer, posted, [&] { return what(); }, may_block)) {
    return false;
  }
  waiter_.compare(received().posting, sent().posting, operation_.peer, number_);
  return true;
}

bool PairTask::match_far(bool may_block) {
  if (!exchange_->advance([&] { return what(); }, may_block)) return false;
  Posting wanted;
  wanted.set(operation_);
  waiter_.compare(wanted, *posting_, operation_.peer, number_);
  return true;
}

PairReleaseTask::PairReleaseTask(Waiter waiter, std::shared_ptr<Outbox> outbox, int receiver,
                                 std::uint64_t number)
    : waiter_(std::move(waiter)),
      outbox_(std::move(outbox)),
      receiver_(receiver),
      number_(number),
      pair_(near_pair(waiter_, waiter_.rank(), receiver)) {}

bool PairReleaseTask::operator()(bool may_block) const {
  const auto what = [&] {
    const std::string text = pair_ ? pair_->sent[number_ % kPairSlots].posting.describe(number_)
                                   : fmt::format("send #{}", number_);
    return "release of " + text;
  };
  if (!outbox_->advance(receiver_, number_, what, may_block)) return false;
  if (!pair_) return true;
  const auto received = [&](int peer) {
    return peer != receiver_ || reached(pair_->received[number_ % kPairSlots].done, number_);
  };
  return waiter_.await(receiver_, received, what, may_block);
}

}  // namespace ration
