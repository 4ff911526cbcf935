#pragma once
// The two ways to run a job's ranks: as threads of this process, or as this process among others.

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <ration/launch.hpp>

#include "control/alarm.hpp"
#include "core/failure.hpp"
#include "launch/environment.hpp"

namespace ration {

struct World::StopState {
  std::atomic<bool> requested{false};
  /// A signal that follows a failure asks for nothing: launchers end the other ranks by one.
  std::shared_ptr<Alarm> alarm;
};

namespace launching {

using Body = std::function<void(World&)>;

/// Returns the exit code; what a rank threw has been printed.
int run_threads(int ranks, const Body& body, const std::shared_ptr<World::StopState>& stop);
int run_process(const JobEnvironment& environment, const Body& body,
                const std::shared_ptr<World::StopState>& stop);

/// An error's text as it is printed: in one line that begins with a rank.
inline std::string one_line(int rank, std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line.starts_with("rank ") ? line : fmt::format("rank {}: {}", rank, line);
}

}  // namespace launching
}  // namespace ration
