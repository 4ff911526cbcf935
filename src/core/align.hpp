#pragma once
// Rounding up, for layouts and allocations.

#include <cstdint>

namespace ration {

/// Every parameter and shard begins at a multiple of this many elements.
inline constexpr std::int64_t kAlignElements = 64;

template <class T>
constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace ration
