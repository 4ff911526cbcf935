#include "control/tcp/place.hpp"

#include <algorithm>
#include <utility>

#include "control/tcp/star_control.hpp"
#include "core/timeout.hpp"

namespace ration::tcp {

using namespace std::chrono_literals;

Place::Place(int rank, int size, std::shared_ptr<Alarm> alarm)
    : rank_(rank), size_(size), alarm_(std::move(alarm)) {}

void Place::enter(std::uint64_t group, StarControl& control) {
  const std::lock_guard lock(controls_mutex_);
  controls_[group] = &control;
}

void Place::exit(std::uint64_t group) {
  const std::lock_guard lock(controls_mutex_);
  controls_.erase(group);
}

StarControl* Place::find(std::uint64_t group) {
  const auto found = controls_.find(group);
  return found == controls_.end() ? nullptr : found->second;
}

void Place::deliver(Combine&& combine) {
  const std::lock_guard lock(controls_mutex_);
  if (StarControl* control = find(combine.key.group)) control->take(std::move(combine));
}

void Place::deliver(Result&& result) {
  const std::lock_guard lock(controls_mutex_);
  if (StarControl* control = find(result.key.group)) control->take(std::move(result));
}

void Place::deliver(const Patience& patience) {
  const std::lock_guard lock(controls_mutex_);
  if (StarControl* control = find(patience.key.group)) control->take(patience);
}

std::chrono::milliseconds Place::heartbeat_interval() {
  return std::clamp(operation_timeout() / 4, 20ms, 1000ms);
}

std::chrono::milliseconds Place::most_silence() {
  // Under a second a busy machine may keep any thread waiting.
  return std::max(operation_timeout(), 1000ms);
}

}  // namespace ration::tcp
