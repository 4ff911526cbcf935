#pragma once
// A place to sleep until something another thread (or process) does makes a condition true: a futex
// with a generation count, so that nothing is missed between looking and sleeping, and no system
// call is made when nobody sleeps.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ration {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

class alignas(64) Signal {
 public:
  /// Between processes it lies in memory that they share.
  explicit Signal(bool between_processes = false) : between_processes_(between_processes) {}

  /// Wakes every sleeper to look again. Call after the change that they wait for.
  void notify() {
    generation_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

  /// Returns true once `condition()` holds, false when `deadline` has passed. A short spin first:
  /// ranks may outnumber cores, and a spinning wait takes the core from the rank it waits for.
  template <class Condition>
  bool wait(const Condition& condition, Deadline deadline) {
    for (int i = 0; i < kSpins; ++i) {
      if (condition()) return true;
      pause();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool holds = false;
    for (;;) {
      const std::uint32_t seen = generation_.load(std::memory_order_seq_cst);
      holds = condition();
      if (holds || !sleep(seen, deadline)) break;
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return holds || condition();
  }

 private:
  static constexpr int kSpins = 64;
  static void pause();
  void wake();
  bool sleep(std::uint32_t seen, Deadline deadline);  // false when the deadline has passed

  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  const bool between_processes_;
};

}  // namespace ration
