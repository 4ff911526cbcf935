#pragma once
// A job of several stars in one process, over the loopback, each with an alarm of its own as if it
// were a process.

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "control/tcp/star.hpp"
#include "device/host/polling_wait.hpp"
#include "support/ranks.hpp"

namespace ration {

inline std::string any_token() {
  static std::atomic<int> number{0};
  return fmt::format("test {} {}", Clock::now().time_since_epoch().count(), ++number);
}

inline std::vector<int> whole(int ranks) {
  std::vector<int> names(static_cast<std::size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

/// Whether `condition` holds within a minute, where nobody says when it does.
template <class Condition>
bool eventually(const Condition& condition) {
  Signal nobody;
  return wait_polling(nobody, condition, Clock::now() + std::chrono::minutes(1));
}

struct Stars {
  std::vector<std::shared_ptr<Star>> stars;
  std::vector<std::shared_ptr<Alarm>> alarms;
  std::uint16_t port = 0;

  explicit Stars(int ranks)
      : stars(static_cast<std::size_t>(ranks)), alarms(static_cast<std::size_t>(ranks)) {
    auto listener = std::make_unique<Listener>(std::vector<std::uint16_t>{0});
    port = listener->port();
    const std::string token = any_token();
    for (auto& alarm : alarms) alarm = std::make_shared<Alarm>(ranks);
    run_ranks(ranks, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Meeting meeting{rank, ranks, {"127.0.0.1"}, {port}, token};
      stars[r] = Star::meet(meeting, alarms[r], rank == 0 ? std::move(listener) : nullptr);
    });
  }
  // Rank 0's waits for the others.
  ~Stars() {
    while (!stars.empty()) stars.pop_back();
  }
  Stars(Stars&&) = default;
  Stars& operator=(Stars&&) = delete;
  Stars(const Stars&) = delete;
  Stars& operator=(const Stars&) = delete;

  [[nodiscard]] Star& of(int rank) const { return *stars[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Alarm& alarm(int rank) const { return *alarms[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const { return static_cast<int>(stars.size()); }

  /// Controls of the group whose ranks are `names`, by rank in it.
  [[nodiscard]] std::vector<std::unique_ptr<Control>> controls(std::uint64_t group,
                                                               std::vector<int> names) const {
    std::vector<std::unique_ptr<Control>> controls;
    for (std::size_t rank = 0; rank < names.size(); ++rank)
      controls.push_back(of(names[rank]).control(group, names, static_cast<int>(rank)));
    return controls;
  }
};

}  // namespace ration
