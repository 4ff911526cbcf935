#pragma once
// The rules, one element at a time: what happens to a weight and its state. The loops around them
// are in rules.kernel.cpp; a GPU kernel calls the same functions. fp32 without contraction, IEEE
// division and square root, in the order in which PyTorch's single-tensor optimizers compute.
// Internal linkage, for the reason given in device/host/kernel_elements.hpp.

#include "update/scalars.hpp"

#ifdef __CUDACC__
#define RATION_FORMULA __host__ __device__ inline
#define RATION_SQRT(x) sqrtf(x)
#else
#define RATION_FORMULA inline
#define RATION_SQRT(x) __builtin_sqrtf(x)
#endif

namespace ration::update {
namespace {

// The tail that Adam and AdamW share.
[[maybe_unused]] RATION_FORMULA float adam_moments(const AdamScalars& s, float weight,
                                                   float gradient, float& exp_avg,
                                                   float& exp_avg_sq) {
  exp_avg = s.beta1 * exp_avg + s.rest1 * gradient;
  exp_avg_sq = s.beta2 * exp_avg_sq + s.rest2 * gradient * gradient;
  const float denominator = RATION_SQRT(exp_avg_sq) / s.bias2_root + s.epsilon;
  return weight + s.negative_step * exp_avg / denominator;
}

struct AdamWFormula {
  static RATION_FORMULA void update(const AdamScalars& s, float& weight, float gradient,
                                    float& exp_avg, float& exp_avg_sq) {
    weight = adam_moments(s, weight * s.keep, gradient * s.factor, exp_avg, exp_avg_sq);
  }
};

struct AdamFormula {
  static RATION_FORMULA void update(const AdamScalars& s, float& weight, float gradient,
                                    float& exp_avg, float& exp_avg_sq) {
    const float decayed = gradient * s.factor + s.l2 * weight;
    weight = adam_moments(s, weight, decayed, exp_avg, exp_avg_sq);
  }
};

struct SgdFormula {
  static RATION_FORMULA void update(const SgdScalars& s, float& weight, float gradient) {
    weight = weight + s.negative_rate * (gradient * s.factor + s.l2 * weight);
  }
};

// At the first step the buffer is 0 and `rest` 1, so that it becomes the gradient.
struct MomentumFormula {
  static RATION_FORMULA void update(const SgdScalars& s, float& weight, float gradient,
                                    float& buffer) {
    const float decayed = gradient * s.factor + s.l2 * weight;
    buffer = s.momentum * buffer + s.rest * decayed;
    weight = weight + s.negative_rate * buffer;
  }
};

struct NesterovFormula {
  static RATION_FORMULA void update(const SgdScalars& s, float& weight, float gradient,
                                    float& buffer) {
    const float decayed = gradient * s.factor + s.l2 * weight;
    buffer = s.momentum * buffer + s.rest * decayed;
    weight = weight + s.negative_rate * (decayed + s.momentum * buffer);
  }
};

struct AdagradFormula {
  static RATION_FORMULA void update(const AdagradScalars& s, float& weight, float gradient,
                                    float& sum) {
    const float decayed = gradient * s.factor + s.l2 * weight;
    sum = sum + decayed * decayed;
    weight = weight + s.negative_rate * decayed / (RATION_SQRT(sum) + s.epsilon);
  }
};

struct LionFormula {
  static RATION_FORMULA void update(const LionScalars& s, float& weight, float gradient,
                                    float& exp_avg) {
    const float scaled = gradient * s.factor;
    const float direction = s.beta1 * exp_avg + s.rest1 * scaled;
    const float sign = direction > 0.0f ? 1.0f : (direction < 0.0f ? -1.0f : 0.0f);
    weight = weight * s.keep + s.negative_rate * sign;
    exp_avg = s.beta2 * exp_avg + s.rest2 * scaled;
  }
};

}  // namespace
}  // namespace ration::update
