// Every rule as a loop over fp32 arrays, compiled once per instruction set.

#include "device/host/kernel_elements.hpp"
#include "update/formulas.hpp"
#include "update/weights_kernel.hpp"

namespace ration::update::RATION_LEVEL {
namespace {

template <class Formula, class Scalars>
void without_state(const Scalars& scalars, float* __restrict weights,
                   const float* __restrict gradients, std::size_t count) {
  const Scalars s = scalars;
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    Formula::update(s, weights[i], gradients[i]);
  }
}

template <class Formula, class Scalars>
void with_one_state(const Scalars& scalars, float* __restrict weights,
                    const float* __restrict gradients, float* __restrict state, std::size_t count) {
  const Scalars s = scalars;
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    Formula::update(s, weights[i], gradients[i], state[i]);
  }
}

template <class Formula, class Scalars>
void with_two_states(const Scalars& scalars, float* __restrict weights,
                     const float* __restrict gradients, float* __restrict state1,
                     float* __restrict state2, std::size_t count) {
  const Scalars s = scalars;
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    Formula::update(s, weights[i], gradients[i], state1[i], state2[i]);
  }
}

}  // namespace

extern const Kernels kKernels = {
    .adamw = with_two_states<AdamWFormula, AdamScalars>,
    .adam = with_two_states<AdamFormula, AdamScalars>,
    .sgd = without_state<SgdFormula, SgdScalars>,
    .momentum = with_one_state<MomentumFormula, SgdScalars>,
    .nesterov = with_one_state<NesterovFormula, SgdScalars>,
    .adagrad = with_one_state<AdagradFormula, AdagradScalars>,
    .lion = with_one_state<LionFormula, LionScalars>,
    .scale = scale,
    .round_half_up = round_half_up,
    .join = join,
    .split = split,
    .round_randomly = round_randomly,
};

}  // namespace ration::update::RATION_LEVEL
