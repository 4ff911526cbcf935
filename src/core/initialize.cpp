#include <ration/initialize.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/inverse_normal.hpp"
#include "core/philox.hpp"

namespace ration {
namespace {

// FNV-1a, 64 bits (Fowler, Noll and Vo).
std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::uint32_t lower(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t upper(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

// Calls fill(value, 64 random bits) for each element: the seed is Philox's key, the name's hash and
// the element's index its counter; one call of Philox serves two elements.
template <class Fill>
void for_each_random(const InitializeRun& run, std::uint64_t seed, const Fill& fill) {
  const std::uint64_t name = hash_name(run.name);
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < run.values.size(); ++i) {
    const std::uint64_t element = run.first_element + i;
    const std::uint64_t pair = element / 2;
    const std::size_t half = element % 2;
    if (i == 0 || half == 0) {
      words =
          philox({lower(pair), upper(pair), lower(name), upper(name)}, {lower(seed), upper(seed)});
    }
    fill(run.values[i], std::uint64_t{words[2 * half]} << 32 | words[2 * half + 1]);
  }
}

void check(const char* initializer, const char* option, double value) {
  if (std::isfinite(value) && value >= 0.0) return;
  throw InvalidArgument(
      fmt::format("{}: {} is {}; it must be finite and not negative", initializer, option, value));
}

}  // namespace

Initializer constant(float value) {
  return [value](const InitializeRun& run) { std::ranges::fill(run.values, value); };
}

Initializer normal(double standard_deviation, std::uint64_t seed) {
  check("normal", "standard_deviation", standard_deviation);
  return [=](const InitializeRun& run) {
    for_each_random(run, seed, [=](float& value, std::uint64_t random) {
      // 52 bits and a half: exact, and never 0 or 1.
      const double p = (static_cast<double>(random >> 12) + 0.5) * 0x1p-52;
      value = static_cast<float>(standard_deviation * inverse_normal(p));
    });
  };
}

Initializer uniform(double bound, std::uint64_t seed) {
  check("uniform", "bound", bound);
  return [=](const InitializeRun& run) {
    for_each_random(run, seed, [=](float& value, std::uint64_t random) {
      // 24 bits, so that rounding to float cannot reach the upper bound.
      const double u = static_cast<double>(random >> 40) * 0x1p-23 - 1.0;
      value = static_cast<float>(bound * u);
    });
  };
}

Initializer from(std::function<std::span<const float>(std::string_view name)> find) {
  if (!find) throw InvalidArgument("from: no function to find tensors with");
  return [find = std::move(find)](const InitializeRun& run) {
    std::uint64_t elements = 1;
    for (const std::int64_t extent : run.shape) elements *= static_cast<std::uint64_t>(extent);
    const std::span<const float> tensor = find(run.name);
    if (tensor.size() != elements) {
      throw InvalidArgument(
          fmt::format("parameter \"{}\": the tensor to start from has {} elements, "
                      "expected {}",
                      run.name, tensor.size(), elements));
    }
    std::ranges::copy(tensor.subspan(run.first_element, run.values.size()), run.values.begin());
  };
}

}  // namespace ration
