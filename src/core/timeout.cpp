#include "core/timeout.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration {
namespace {

std::int64_t from_environment() {
  const char* text = std::getenv("RATION_TIMEOUT");
  return text ? parse_timeout(text).count() : 600'000;
}

std::atomic<std::int64_t>& milliseconds() {
  static std::atomic<std::int64_t> value{from_environment()};
  return value;
}

}  // namespace

std::chrono::milliseconds parse_timeout(const char* text) {
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  constexpr double kMost = 1e9;  // beyond is a mistake, and would overflow a deadline
  if (end == text || *end != '\0' || !(seconds > 0) || seconds > kMost) {
    throw InvalidArgument(
        fmt::format("RATION_TIMEOUT=\"{}\": expected seconds, more than 0 and at most 1e9", text));
  }
  return std::chrono::milliseconds(
      std::max(std::int64_t{1}, static_cast<std::int64_t>(seconds * 1000)));
}

std::chrono::milliseconds operation_timeout() {
  return std::chrono::milliseconds(milliseconds().load(std::memory_order_relaxed));
}

void set_operation_timeout(std::chrono::milliseconds timeout) {
  milliseconds().store(timeout.count(), std::memory_order_relaxed);
}

}  // namespace ration
