#include "comm/collectives/waiter.hpp"

#include <algorithm>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ration {

void Waiter::compare(const Posting& own, const Posting& other, int peer,
                     std::uint64_t number) const {
  const bool same_history = own.history == 0 || other.history == 0 || own.history == other.history;
  if (own.fingerprint == other.fingerprint && same_history) return;
  fail({Failure::Kind::communication_error,
        fmt::format("rank {} is in {}, but rank {} in {}: all ranks must do the same operations in "
                    "the same order",
                    group_->name(rank_), own.describe(number), group_->name(peer),
                    other.describe(number))});
}

void Waiter::time_out(const std::string& what, std::chrono::milliseconds timeout,
                      std::vector<int> missing) const {
  // Who misses several may miss them because they wait for one: who misses that one alone knows
  // better, and says so at about the same time.
  constexpr std::chrono::milliseconds kMost{1000};
  if (missing.size() > 1) await_verdict(std::min(kMost, timeout / 4));
  for (int& rank : missing) rank = group_->name(rank);
  std::sort(missing.begin(), missing.end());
  fail({Failure::Kind::timeout,
        fmt::format("rank {}: {}: timed out after {:.1f} s waiting for rank{} {}",
                    group_->name(rank_), what, std::chrono::duration<double>(timeout).count(),
                    missing.size() == 1 ? "" : "s", fmt::join(missing, ", "))});
}

void Waiter::await_verdict(std::chrono::milliseconds patience) const {
  Signal nobody;
  wait_polling(
      nobody, [&] { return group_->alarm().raised(); }, Clock::now() + patience);
  group_->alarm().check_waiting();
}

void Waiter::left_alone(const std::string& what, int peer) const {
  fail({Failure::Kind::communication_error,
        fmt::format("rank {}: {}: rank {} has ended without it; every rank must make the same "
                    "calls (a rank that runs out of batches says has_batch = false)",
                    group_->name(rank_), what, peer)});
}

// A closed connection is the last that is seen of many ends: a process that died, or one that heard
// of another's failure first. Control knows which; it gets a moment to say so.
void Waiter::lost(const std::string& what, int peer, const std::string& why) const {
  await_verdict(std::chrono::milliseconds(500));
  fail({Failure::Kind::communication_error,
        fmt::format("rank {}: {}: the connection to rank {} was lost: {}", group_->name(rank_),
                    what, group_->name(peer), why)});
}

// The group is at its end: what comes after could never match again.
void Waiter::fail(Failure failure) const {
  group_->alarm().raise(std::move(failure));
  group_->alarm().check_waiting();
  std::terminate();  // not reached: the alarm is raised
}

}  // namespace ration
