#pragma once
// One pass over a run: blocks that fit the L1 cache are widened to fp32, given to the rule, and
// narrowed again.

#include "device/host/arithmetic.hpp"
#include "update/kernels.hpp"
#include "update/update.hpp"

namespace ration::update {

/// What a pass works with: the functions of one instruction set.
struct Level {
  const char* name;
  const Arithmetic& arithmetic;
  const Kernels& kernels;
};

/// Throws InvalidArgument for combinations of types that mean nothing.
void check(const Run& run);

/// Expects the floating-point control register to be set.
void pass(const Level& level, const Rule& rule, const Run& run);

void load_weights(const Level& level, const Run& run, std::size_t first, std::size_t count,
                  float* to);
/// For WeightKind::fp32 `from` may be the master itself.
void store_weights(const Level& level, const Run& run, std::size_t first, std::size_t count,
                   const float* from);

}  // namespace ration::update
