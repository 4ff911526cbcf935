#pragma once
// A rank's view of its group, and how it waits for peers.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/rank_group.hpp"
#include "core/timeout.hpp"
#include "device/host/polling_wait.hpp"

namespace ration {

class Waiter {
 public:
  Waiter(std::shared_ptr<RankGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] RankGroup& group() const { return *group_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }

  /// True once `ready(peer)`, of a near peer; false if it is not and may not block. Throws Timeout
  /// with all near peers that are not ready, those that `also` adds and `describe()`, and what the
  /// alarm was raised for. Sleeps on `signal(peer)`.
  template <class Ready, class Describe, class SignalOf, class Also>
  bool await(int peer, const Ready& ready, const Describe& describe, bool may_block,
             const SignalOf& signal_of, const Also& also) const {
    if (ready(peer)) return true;
    Alarm& alarm = group_->alarm();
    alarm.check_waiting();
    if (!may_block) return false;
    const auto timeout = operation_timeout();
    const int name = group_->name(peer);
    const auto wake = [&] { return ready(peer) || alarm.raised() || alarm.departed(name); };
    if (!wait_polling(signal_of(peer), wake, Clock::now() + timeout)) {
      std::vector<int> missing = not_ready(ready);
      if (!missing.empty()) {
        also(missing);
        time_out(describe(), timeout, std::move(missing));
      }
    }
    if (!ready(peer)) {
      alarm.check_waiting();
      if (!ready(peer)) left_alone(describe(), name);
    }
    return true;
  }

  template <class Ready, class Describe>
  bool await(int peer, const Ready& ready, const Describe& describe, bool may_block) const {
    return await(
        peer, ready, describe, may_block, [this](int p) -> Signal& { return group_->signal(p); },
        nobody_else);
  }

  /// Of all near peers.
  template <class Ready, class Describe, class Also>
  bool await_all(const Ready& ready, const Describe& describe, bool may_block,
                 const Also& also) const {
    const auto signal_of = [this](int p) -> Signal& { return group_->signal(p); };
    for (const int peer : group_->near()) {
      if (!await(peer, ready, describe, may_block, signal_of, also)) return false;
    }
    return true;
  }
  template <class Ready, class Describe>
  bool await_all(const Ready& ready, const Describe& describe, bool may_block) const {
    return await_all(ready, describe, may_block, nobody_else);
  }

  static void nobody_else(std::vector<int>&) {}

  template <class Ready>
  [[nodiscard]] std::vector<int> not_ready(const Ready& ready) const {
    std::vector<int> ranks;
    for (const int peer : group_->near()) {
      if (!ready(peer)) ranks.push_back(peer);
    }
    return ranks;
  }

  /// As `await`, for a message to or from `peer`. `missing()` gives the ranks (of the group) that a
  /// Timeout names.
  template <class Missing, class Describe>
  bool await_message(Message& message, int peer, const Missing& missing, const Describe& describe,
                     bool may_block) const {
    try {
      if (message.wait(Deadline::min())) return true;
      Alarm& alarm = group_->alarm();
      alarm.check_waiting();
      if (!may_block) return false;
      const auto timeout = operation_timeout();
      const Deadline deadline = Clock::now() + timeout;
      const int name = group_->name(peer);
      // That a rank has ended may be known before the last that it sent has arrived.
      constexpr std::chrono::seconds kLast{1};
      Deadline last = Deadline::max();
      while (!message.wait(std::min({deadline, last, Clock::now() + kWaitSlice}))) {
        look_around();
        alarm.check_waiting();
        const Deadline now = Clock::now();
        if (last == Deadline::max() && alarm.departed(name)) last = now + kLast;
        if (now >= last) left_alone(describe(), name);
        if (now >= deadline) time_out(describe(), timeout, missing());
      }
      return true;
    } catch (const ConnectionLost& error) {
      lost(describe(), peer, error.what());
    }
  }

  /// Throws CommunicationError, on all ranks, if what `peer` posted is not what this rank did.
  void compare(const Posting& own, const Posting& other, int peer, std::uint64_t number) const;

  /// Tells whoever waits for this rank to look again.
  void notify() const { group_->signal(rank_).notify(); }

 private:
  /// `missing`: ranks of the group.
  [[noreturn]] void time_out(const std::string& what, std::chrono::milliseconds timeout,
                             std::vector<int> missing) const;
  /// Gives others this long to raise the alarm; throws what they raised.
  void await_verdict(std::chrono::milliseconds patience) const;
  [[noreturn]] void left_alone(const std::string& what, int peer) const;
  [[noreturn]] void lost(const std::string& what, int peer, const std::string& why) const;
  [[noreturn]] void fail(Failure failure) const;

  std::shared_ptr<RankGroup> group_;
  int rank_;
};

}  // namespace ration
