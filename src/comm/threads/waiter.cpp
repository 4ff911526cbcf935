#include "comm/threads/waiter.hpp"

#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ration {

void Waiter::compare(const Slot& own, const Slot& other, int peer, std::uint64_t number) const {
  const std::uint64_t mine = own.operation.history;
  const std::uint64_t theirs = other.operation.history;
  const bool same_history = mine == 0 || theirs == 0 || mine == theirs;
  if (own.fingerprint == other.fingerprint && same_history) return;
  fail({Failure::Kind::communication_error,
        fmt::format("rank {} is in {}, but rank {} in {}: all ranks must do the same operations in "
                    "the same order",
                    group_->name(rank_), own.describe(number), group_->name(peer),
                    other.describe(number))});
}

void Waiter::time_out(const std::string& what, std::chrono::milliseconds timeout,
                      const std::vector<int>& missing) const {
  fail({Failure::Kind::timeout,
        fmt::format("rank {}: {}: timed out after {:.1f} s waiting for rank{} {}",
                    group_->name(rank_), what, std::chrono::duration<double>(timeout).count(),
                    missing.size() == 1 ? "" : "s", fmt::join(missing, ", "))});
}

void Waiter::left_alone(const std::string& what, int peer) const {
  fail({Failure::Kind::communication_error,
        fmt::format("rank {}: {}: rank {} has ended without it; every rank must make the same "
                    "calls (a rank that runs out of batches says has_batch = false)",
                    group_->name(rank_), what, peer)});
}

// The group is at its end: what comes after could never match again.
void Waiter::fail(Failure failure) const {
  group_->alarm().raise(std::move(failure));
  group_->alarm().check_waiting();
  std::terminate();  // not reached: the alarm is raised
}

}  // namespace ration
