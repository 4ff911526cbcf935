#pragma once
// The update's functions that are compiled once per instruction set: a rule over fp32 arrays, and
// the ways in which weights and moments are kept in fewer bits. They run under whatever the
// floating-point control register says; `apply` sets it. Arrays do not overlap.

#include <cstddef>
#include <cstdint>

#include "update/scalars.hpp"

namespace ration::update {

/// Random bits for stochastic rounding: a parameter's update, and where in the parameter we are.
struct RandomBits {
  std::uint64_t seed = 0;           ///< of key and step, see random_seed
  std::uint64_t first_element = 0;  ///< of the arrays' first element
};

struct Kernels {
  void (*adamw)(const AdamScalars&, float* weights, const float* gradients, float* exp_avg,
                float* exp_avg_sq, std::size_t count);
  void (*adam)(const AdamScalars&, float* weights, const float* gradients, float* exp_avg,
               float* exp_avg_sq, std::size_t count);
  void (*sgd)(const SgdScalars&, float* weights, const float* gradients, std::size_t count);
  void (*momentum)(const SgdScalars&, float* weights, const float* gradients, float* buffer,
                   std::size_t count);
  void (*nesterov)(const SgdScalars&, float* weights, const float* gradients, float* buffer,
                   std::size_t count);
  void (*adagrad)(const AdagradScalars&, float* weights, const float* gradients, float* sum,
                  std::size_t count);
  void (*lion)(const LionScalars&, float* weights, const float* gradients, float* exp_avg,
               std::size_t count);

  /// to[i] = from[i] * factor.
  void (*scale)(const float* from, float factor, float* to, std::size_t count);

  /// bf16 from fp32, rounded half up: (bits + 0x8000) >> 16; a NaN stays one.
  void (*round_half_up)(const float* from, std::uint16_t* to, std::size_t count);

  /// Split master, see weights.kernel.cpp.
  void (*join)(const std::uint16_t* weights, const std::uint16_t* residues, float* to,
               std::size_t count);
  void (*split)(const float* from, std::uint16_t* weights, std::uint16_t* residues,
                std::size_t count);

  /// bf16 from fp32 with stochastic rounding; one hash an element serves two arrays, of which
  /// `from2` and `to2` may be null.
  void (*round_randomly)(const RandomBits&, const float* from1, std::uint16_t* to1,
                         const float* from2, std::uint16_t* to2, std::size_t count);
};

namespace baseline {
extern const Kernels kKernels;
}
#ifdef RATION_X86_LEVELS
namespace x86_64_v3 {
extern const Kernels kKernels;
}
namespace x86_64_v4 {
extern const Kernels kKernels;
}
#endif

}  // namespace ration::update
