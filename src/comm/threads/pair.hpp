#pragma once
// send and recv as stream tasks: matched by the pair of ranks and their order, apart from the
// collectives.

#include "comm/threads/waiter.hpp"

namespace ration {

class PairTask {
 public:
  /// `number` counts the operations from this sender to this receiver.
  PairTask(Waiter waiter, const Operation& operation, std::uint64_t number, const char* stream);
  bool operator()(bool may_block);

 private:
  bool send(bool may_block);
  bool receive(bool may_block);

  Waiter waiter_;
  Operation operation_;
  std::uint64_t number_;
  const char* stream_;
  ThreadsGroup::Pair* pair_;
  bool posted_ = false;
};

/// Waits until the receiver has read the `send`.
class PairReleaseTask {
 public:
  PairReleaseTask(Waiter waiter, int receiver, std::uint64_t number);
  bool operator()(bool may_block) const;

 private:
  Waiter waiter_;
  int receiver_;
  std::uint64_t number_;
  ThreadsGroup::Pair* pair_;
};

}  // namespace ration
