#pragma once
// Initial values: functions of (parameter, element) alone, so that every rank fills only its own
// part and every world size starts from the same bits.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace ration {

/// What an initializer is told of the parameter it fills.
struct InitializeRun {
  std::string_view name = {};
  std::span<const std::int64_t> shape = {};
  std::uint64_t first_element = 0;  ///< index in the parameter of `values[0]`
  std::span<float> values = {};     ///< to be written, all of them
};

/// Called for pieces of parameters, on the rank that owns them; must be a pure function of name,
/// shape and element index.
using Initializer = std::function<void(const InitializeRun&)>;

/// Every element the same.
Initializer constant(float value);

/// Normally distributed, mean 0: a counter-based generator (Philox 4x32-10, Salmon et al. 2011)
/// keyed by seed and parameter name, turned normal by the inverse distribution function (Acklam's
/// rational approximation, relative error below 1.2e-9). Basic arithmetic only: the same bits on
/// every machine.
Initializer normal(double standard_deviation, std::uint64_t seed);

/// Uniform in [-bound, bound), from the same generator.
Initializer uniform(double bound, std::uint64_t seed);

/// Fills parameters from whole tensors that every rank can read: `find(name)` returns the tensor's
/// elements in row-major order; throws InvalidArgument when the span is not as long as the
/// parameter.
Initializer from(std::function<std::span<const float>(std::string_view name)> find);

}  // namespace ration
