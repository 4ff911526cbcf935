#pragma once
// A rank's view of its group, and how it waits for peers.

#include <memory>
#include <string>
#include <utility>

#include "comm/threads/group.hpp"
#include "device/host/polling_wait.hpp"

namespace ration {

class Waiter {
 public:
  Waiter(std::shared_ptr<ThreadsGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] ThreadsGroup& group() const { return *group_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }

  /// True once `ready(peer)`; false if it is not and may not block. Throws Timeout with all peers
  /// that are not ready and `describe()`, and what the alarm was raised for. Sleeps on
  /// `signal(peer)`.
  template <class Ready, class Describe, class SignalOf>
  bool await(int peer, const Ready& ready, const Describe& describe, bool may_block,
             const SignalOf& signal_of) const {
    if (ready(peer)) return true;
    Alarm& alarm = group_->alarm();
    alarm.check_waiting();
    if (!may_block) return false;
    const auto timeout = operation_timeout();
    const int name = group_->name(peer);
    const auto wake = [&] { return ready(peer) || alarm.raised() || alarm.departed(name); };
    if (!wait_polling(signal_of(peer), wake, Clock::now() + timeout)) {
      std::vector<int> missing;
      for (int p = 0; p < size(); ++p) {
        if (!ready(p)) missing.push_back(group_->name(p));
      }
      if (!missing.empty()) time_out(describe(), timeout, missing);
    }
    if (!ready(peer)) {
      alarm.check_waiting();
      if (!ready(peer)) left_alone(describe(), name);
    }
    return true;
  }

  template <class Ready, class Describe>
  bool await(int peer, const Ready& ready, const Describe& describe, bool may_block) const {
    return await(peer, ready, describe, may_block,
                 [this](int p) -> Signal& { return group_->signal(p); });
  }

  template <class Ready, class Describe>
  bool await_all(const Ready& ready, const Describe& describe, bool may_block) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (!await(peer, ready, describe, may_block)) return false;
    }
    return true;
  }

  /// Throws CommunicationError, on all ranks, if what `peer` posted is not what this rank did.
  void compare(const Slot& own, const Slot& other, int peer, std::uint64_t number) const;

  /// Tells whoever waits for this rank to look again.
  void notify() const { group_->signal(rank_).notify(); }

 private:
  [[noreturn]] void time_out(const std::string& what, std::chrono::milliseconds timeout,
                             const std::vector<int>& missing) const;
  [[noreturn]] void left_alone(const std::string& what, int peer) const;
  [[noreturn]] void fail(Failure failure) const;

  std::shared_ptr<ThreadsGroup> group_;
  int rank_;
};

}  // namespace ration
