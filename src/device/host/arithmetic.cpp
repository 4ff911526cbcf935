#include "device/host/arithmetic.hpp"

#include "device/host/arithmetic_kernels.hpp"
#include "device/host/float_control.hpp"
#include "device/host/instruction_set.hpp"

namespace ration {
namespace {

// The kernels of one instruction set behind the floating-point control they are promised under, so
// that no caller need think of it. (Two instructions a call.)
template <const Arithmetic& kKernels, std::size_t kLevel>
struct Controlled {
  static void cast(const void* from, DType from_type, void* to, DType to_type, std::size_t count) {
    const FloatControl control;
    kKernels.cast(from, from_type, to, to_type, count);
  }

  static void ordered_sum(const void* const* sources, std::size_t source_count, DType source_type,
                          DType wire_type, void* to, DType to_type, bool add, std::size_t count) {
    const FloatControl control;
    kKernels.ordered_sum(sources, source_count, source_type, wire_type, to, to_type, add, count);
  }

  static void add(const void* from, DType from_type, float* to, std::size_t count) {
    const FloatControl control;
    kKernels.add(from, from_type, to, count);
  }

  static double norm_block(const void* values, DType type, std::size_t count) {
    const FloatControl control;
    return kKernels.norm_block(values, type, count);
  }

  static constexpr Arithmetic kTable = {kInstructionSetNames[kLevel], cast, ordered_sum, add,
                                        norm_block};
};

}  // namespace

std::span<const Arithmetic* const> arithmetic_levels() {
  static const Arithmetic* const levels[] = {
      &Controlled<baseline::kArithmetic, 0>::kTable,
#ifdef RATION_X86_LEVELS
      &Controlled<x86_64_v3::kArithmetic, 1>::kTable,
      &Controlled<x86_64_v4::kArithmetic, 2>::kTable,
#endif
  };
  return std::span(levels).first(instruction_set_levels());
}

const Arithmetic& arithmetic() {
  static const Arithmetic& best = *arithmetic_levels().back();
  return best;
}

void NormTree::add(const void* values, DType type, std::size_t count) {
  const Arithmetic& table = arithmetic();
  const FloatControl control;
  const auto* bytes = static_cast<const std::byte*>(values);
  for (std::size_t begin = 0; begin < count; begin += kNormBlock) {
    const std::size_t block = count - begin < kNormBlock ? count - begin : kNormBlock;
    add_block(table.norm_block(bytes + begin * size_of(type), type, block));
  }
}

void NormTree::add_block(double sum) {
  std::size_t height = 0;
  for (; (blocks_ >> height & 1) != 0; ++height) sum = partial_[height] + sum;
  partial_[height] = sum;
  ++blocks_;
}

double NormTree::sum() const {
  double sum = 0.0;
  bool first = true;
  for (std::size_t height = 0; height < 64; ++height) {
    if ((blocks_ >> height & 1) == 0) continue;
    sum = first ? partial_[height] : partial_[height] + sum;
    first = false;
  }
  return sum;
}

}  // namespace ration
