#include "comm/threads/pair.hpp"

#include "comm/threads/work.hpp"
#include "core/trace.hpp"

namespace ration {
namespace {

constexpr std::uint64_t kRing = ThreadsGroup::kPairRing;

bool reached(const std::atomic<std::uint64_t>& counter, std::uint64_t number) {
  return counter.load(std::memory_order_acquire) > number;
}

}  // namespace

PairTask::PairTask(Waiter waiter, const Operation& operation, std::uint64_t number,
                   const char* stream)
    : waiter_(std::move(waiter)),
      operation_(operation),
      number_(number),
      stream_(stream),
      pair_(operation.kind == OperationKind::send
                ? &waiter_.group().pair(waiter_.rank(), operation.peer)
                : &waiter_.group().pair(operation.peer, waiter_.rank())) {}

bool PairTask::operator()(bool may_block) {
  return operation_.kind == OperationKind::send ? send(may_block) : receive(may_block);
}

// Posting is all: the receiver reads when it comes.
bool PairTask::send(bool may_block) {
  waiter_.group().alarm().check_arriving();
  const auto free = [&](int peer) {
    return peer != operation_.peer || number_ < kRing ||
           reached(pair_->received[number_ % kRing].done, number_ - kRing);
  };
  const auto what = [&] { return describe(operation_, number_); };
  if (!waiter_.await(operation_.peer, free, what, may_block)) return false;
  pair_->sent[number_ % kRing].post(operation_, number_);
  waiter_.notify();
  return true;
}

bool PairTask::receive(bool may_block) {
  Slot& own = pair_->received[number_ % kRing];
  const Slot& sent = pair_->sent[number_ % kRing];
  if (!posted_) {
    waiter_.group().alarm().check_arriving();
    own.post(operation_, number_);  // no one reads it but `compare`
    posted_ = true;
  }
  const auto posted = [&](int peer) {
    return peer != operation_.peer || reached(sent.posted, number_);
  };
  const auto what = [&] { return describe(operation_, number_); };
  if (!waiter_.await(operation_.peer, posted, what, may_block)) return false;
  waiter_.compare(own, sent, operation_.peer, number_);
  {
    const trace::Span span("recv", operation_.tag, stream_);
    const Alarm::Reading reading(waiter_.group().alarm());
    work::copy(operation_.recv, sent.source, operation_.count * size_of(operation_.type));
  }
  own.done.store(number_ + 1, std::memory_order_release);
  waiter_.notify();
  return true;
}

PairReleaseTask::PairReleaseTask(Waiter waiter, int receiver, std::uint64_t number)
    : waiter_(std::move(waiter)),
      receiver_(receiver),
      number_(number),
      pair_(&waiter_.group().pair(waiter_.rank(), receiver)) {}

bool PairReleaseTask::operator()(bool may_block) const {
  const auto received = [&](int peer) {
    return peer != receiver_ || reached(pair_->received[number_ % kRing].done, number_);
  };
  const auto what = [&] { return "release of " + pair_->sent[number_ % kRing].describe(number_); };
  return waiter_.await(receiver_, received, what, may_block);
}

}  // namespace ration
