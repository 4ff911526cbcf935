#include "update/scalars.hpp"

#include <cmath>

namespace ration::update {

double power(double beta, std::int64_t step) {
  double result = 1.0;
  double square = beta;
  for (std::int64_t rest = step; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result *= square;
    square *= square;
  }
  return result;
}

namespace {

template <class Rule>
AdamScalars adam_scalars(const Rule& rule, float factor, std::int64_t step) {
  const double bias1 = 1.0 - power(rule.beta1, step);
  const double bias2 = 1.0 - power(rule.beta2, step);
  return {.factor = factor,
          .keep = 1.0f,
          .l2 = 0.0f,
          .beta1 = static_cast<float>(rule.beta1),
          .rest1 = static_cast<float>(1.0 - rule.beta1),
          .beta2 = static_cast<float>(rule.beta2),
          .rest2 = static_cast<float>(1.0 - rule.beta2),
          .bias2_root = static_cast<float>(std::sqrt(bias2)),
          .epsilon = static_cast<float>(rule.epsilon),
          .negative_step = static_cast<float>(-rule.learning_rate / bias1)};
}

}  // namespace

AdamScalars scalars(const Adam& rule, float factor, std::int64_t step) {
  AdamScalars result = adam_scalars(rule, factor, step);
  result.l2 = static_cast<float>(rule.weight_decay);
  return result;
}

AdamScalars scalars(const AdamW& rule, float factor, std::int64_t step) {
  AdamScalars result = adam_scalars(rule, factor, step);
  result.keep = static_cast<float>(1.0 - rule.learning_rate * rule.weight_decay);
  return result;
}

SgdScalars scalars(const SGD& rule, float factor, std::int64_t step) {
  return {.factor = factor,
          .l2 = static_cast<float>(rule.weight_decay),
          .momentum = static_cast<float>(rule.momentum),
          .rest = step == 1 ? 1.0f : static_cast<float>(1.0 - rule.dampening),
          .negative_rate = static_cast<float>(-rule.learning_rate)};
}

AdagradScalars scalars(const Adagrad& rule, float factor, std::int64_t step) {
  const double decayed =
      rule.learning_rate / (1.0 + static_cast<double>(step - 1) * rule.learning_rate_decay);
  return {.factor = factor,
          .l2 = static_cast<float>(rule.weight_decay),
          .epsilon = static_cast<float>(rule.epsilon),
          .negative_rate = static_cast<float>(-decayed)};
}

LionScalars scalars(const Lion& rule, float factor, std::int64_t) {
  return {.factor = factor,
          .keep = static_cast<float>(1.0 - rule.learning_rate * rule.weight_decay),
          .beta1 = static_cast<float>(rule.beta1),
          .rest1 = static_cast<float>(1.0 - rule.beta1),
          .beta2 = static_cast<float>(rule.beta2),
          .rest2 = static_cast<float>(1.0 - rule.beta2),
          .negative_rate = static_cast<float>(-rule.learning_rate)};
}

}  // namespace ration::update
