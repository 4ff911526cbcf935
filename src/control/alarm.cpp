#include "control/alarm.hpp"

#include <chrono>
#include <utility>

#include <ration/error.hpp>

#include "core/log.hpp"

namespace ration {

Alarm::Alarm(int ranks)
    : departed_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(ranks))) {}

void Alarm::raise(Failure failure) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !raised_.load(std::memory_order_relaxed);
    if (first) {
      failure_ = std::move(failure);
      raised_.store(true, std::memory_order_seq_cst);
    }
  }
  if (first) {
    const std::lock_guard lock(tell_mutex_);
    if (tell_) std::exchange(tell_, nullptr)(failure_);
  }
  await_readers();
}

void Alarm::on_raise(std::function<void(const Failure&)> tell) {
  const std::lock_guard lock(tell_mutex_);
  tell_ = nullptr;
  if (tell && raised()) {
    tell(failure_);
  } else {
    tell_ = std::move(tell);
  }
}

void Alarm::await_readers() const {
  // A read takes as long as the sum or copy of one buffer; the deadline is for a rank that is
  // stopped.
  constexpr std::chrono::seconds kPatience{30};
  if (!readers_left_.wait([&] { return readers_.load(std::memory_order_seq_cst) == 0; },
                          Clock::now() + kPatience)) {
    log::warning("a rank still reads another's memory {} s after an abort", kPatience.count());
  }
}

void Alarm::depart(int name) {
  departed_[static_cast<std::size_t>(name)].store(true, std::memory_order_release);
  any_departed_.store(true, std::memory_order_release);
}

std::optional<std::string> Alarm::reason() const {
  if (!raised()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_.text;
}

void Alarm::check_waiting() const {
  if (!raised()) return;
  await_readers();
  failure_.raise();
}

void Alarm::check_arriving() const {
  if (!raised()) return;
  await_readers();
  throw RemoteError(failure_.text);
}

Alarm::Reading::Reading(Alarm& alarm) : alarm_(alarm) {
  alarm_.readers_.fetch_add(1, std::memory_order_seq_cst);
  if (alarm_.raised()) {
    alarm_.leave();
    alarm_.check_waiting();
  }
}

Alarm::Reading::~Reading() {
  alarm_.leave();
}

void Alarm::leave() {
  readers_.fetch_sub(1, std::memory_order_seq_cst);
  if (raised()) readers_left_.notify();
}

}  // namespace ration
