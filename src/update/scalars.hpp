#pragma once
// What a rule needs besides arrays: its options and the step count, boiled down to a few fp32
// numbers. Formed in double by additions, multiplications, divisions and square roots alone (whose
// last bits IEEE 754 fixes, unlike those of a libm's pow) and rounded once.

#include <cstdint>

#include <ration/rules.hpp>

namespace ration::update {

/// beta^step by repeated squaring.
double power(double beta, std::int64_t step);

struct AdamScalars {
  float factor;        ///< of every gradient
  float keep;          ///< AdamW: 1 - learning rate * decay; Adam: 1
  float l2;            ///< Adam: decay; AdamW: unused
  float beta1, rest1;  ///< beta1, 1 - beta1
  float beta2, rest2;  ///< beta2, 1 - beta2
  float bias2_root;    ///< sqrt(1 - beta2^step)
  float epsilon;
  float negative_step;  ///< -learning rate / (1 - beta1^step)
};

struct SgdScalars {
  float factor;
  float l2;
  float momentum;
  float rest;           ///< 1 - dampening, but 1 at the first step
  float negative_rate;  ///< -learning rate
};

struct AdagradScalars {
  float factor;
  float l2;
  float epsilon;
  float negative_rate;  ///< -learning rate / (1 + (step - 1) * learning rate decay)
};

struct LionScalars {
  float factor;
  float keep;  ///< 1 - learning rate * decay
  float beta1, rest1;
  float beta2, rest2;
  float negative_rate;  ///< -learning rate
};

AdamScalars scalars(const Adam& rule, float factor, std::int64_t step);
AdamScalars scalars(const AdamW& rule, float factor, std::int64_t step);
SgdScalars scalars(const SGD& rule, float factor, std::int64_t step);
AdagradScalars scalars(const Adagrad& rule, float factor, std::int64_t step);
LionScalars scalars(const Lion& rule, float factor, std::int64_t step);

}  // namespace ration::update
