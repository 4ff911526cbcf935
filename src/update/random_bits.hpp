#pragma once
// Counter-based random bits for stochastic rounding: a function of parameter, step and element, so
// that every cut of a parameter into runs rounds alike. One 32-bit hash an element, of operations
// that make vector code; Philox would make the update several times slower. Internal linkage, for
// the reason given in device/host/kernel_elements.hpp.

#include <cstdint>

namespace ration::update {
namespace {

struct RandomKey {
  std::uint32_t before, between;
};

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
// generators", figure 17).
[[maybe_unused]] inline std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `stream` tells apart hashes of one parameter in one step.
[[maybe_unused]] inline std::uint64_t random_seed(std::uint64_t key, std::int64_t step,
                                                  std::uint64_t stream) {
  return mix64(mix64(key + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(step)) + stream);
}

[[maybe_unused]] inline RandomKey random_key(std::uint64_t seed, std::uint32_t upper_index) {
  const std::uint64_t mixed = mix64(seed + upper_index);
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

// The 32-bit mix "lowbias32" (Wellons 2018, "Prospecting for hash functions") with a second half of
// the key in its middle, so that two steps are not shifts of each other.
[[maybe_unused]] inline std::uint32_t random_hash(const RandomKey& key, std::uint32_t index) {
  std::uint32_t x = index ^ key.before;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = x ^ key.between;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

}  // namespace
}  // namespace ration::update
