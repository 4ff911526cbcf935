#include "update/update.hpp"

#include "device/host/arithmetic_kernels.hpp"
#include "device/host/float_control.hpp"
#include "device/host/instruction_set.hpp"
#include "update/pass.hpp"

namespace ration::update {
namespace {

std::span<const Level> all_levels() {
  static const Level levels[] = {
      {kInstructionSetNames[0], ration::baseline::kArithmetic, baseline::kKernels},
#ifdef RATION_X86_LEVELS
      {kInstructionSetNames[1], ration::x86_64_v3::kArithmetic, x86_64_v3::kKernels},
      {kInstructionSetNames[2], ration::x86_64_v4::kArithmetic, x86_64_v4::kKernels},
#endif
  };
  return std::span(levels).first(instruction_set_levels());
}

void apply_with(const Level& level, const Rule& rule, const Run& run) {
  check(run);
  if (run.count == 0) return;
  const FloatControl control;
  pass(level, rule, run);
}

}  // namespace

std::span<const char* const> levels() {
  return std::span(kInstructionSetNames).first(instruction_set_levels());
}

void apply(const Rule& rule, const Run& run) {
  apply_with(all_levels().back(), rule, run);
}

void apply_at(std::size_t level, const Rule& rule, const Run& run) {
  apply_with(all_levels()[level], rule, run);
}

void load_weights(const Run& run, float* to) {
  check(run);
  const FloatControl control;
  load_weights(all_levels().back(), run, 0, run.count, to);
}

void store_weights(const Run& run, const float* from) {
  check(run);
  const FloatControl control;
  store_weights(all_levels().back(), run, 0, run.count, from);
}

}  // namespace ration::update
