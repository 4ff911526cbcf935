#pragma once
// The deadline of every wait for another rank.

#include <chrono>

namespace ration {

/// RATION_TIMEOUT in seconds (fractions allowed), 600 without it. Throws InvalidArgument when the
/// variable holds something else. Tests set it.
std::chrono::milliseconds operation_timeout();
void set_operation_timeout(std::chrono::milliseconds timeout);

/// What RATION_TIMEOUT means by `text`.
std::chrono::milliseconds parse_timeout(const char* text);

}  // namespace ration
