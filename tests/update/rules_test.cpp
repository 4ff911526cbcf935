// Every rule against the same rule in double, element by element.

#include <gtest/gtest.h>

#include <tuple>

#include "model.hpp"
#include "update/scalars.hpp"

namespace ration {
namespace {

using testing::all_types;
using testing::describe;
using testing::kRules;
using testing::Model;
using testing::Oracle;
using testing::random_floats;
using testing::Types;

class Rules : public ::testing::TestWithParam<Rule> {};

// Errors of fp32 add up over the steps; weights are of the order of 1.
TEST_P(Rules, FollowAFloat64OracleOverManySteps) {
  const Rule& rule = GetParam();
  const std::size_t count = 1100;
  const std::vector<float> start = random_floats(count, 1, 1.0f);
  for (std::size_t level = 0; level < update::levels().size(); ++level) {
    Model model(rule, Types{}, start);
    std::vector<Oracle> oracle(count);
    for (std::size_t i = 0; i < count; ++i) {
      oracle[i].w = start[i];
      if (std::holds_alternative<Adagrad>(rule)) oracle[i].a = update::initial_state(rule, 0);
    }
    for (std::int64_t step = 1; step <= 100; ++step) {
      model.set_gradient(random_floats(count, static_cast<std::uint32_t>(step), 3.0f));
      update::apply_at(level, rule, model.run(0, count, step, 0.25f));
      for (std::size_t i = 0; i < count; ++i) {
        oracle[i].update(rule, 0.25 * double{model.gradient_at(i)}, step);
      }
    }
    const std::vector<float> weights = model.weights();
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(weights[i], oracle[i].w, 1e-5 + 2e-6 * std::fabs(oracle[i].w))
          << update::name_of(rule) << " " << update::levels()[level] << " element " << i;
      if (!model.state.empty()) {
        ASSERT_NEAR(model.state_at(0, i), oracle[i].a, 4e-6 * std::fabs(oracle[i].a) + 1e-6);
      }
      if (model.state.size() > 1) {
        ASSERT_NEAR(model.state_at(1, i), oracle[i].b, 4e-6 * std::fabs(oracle[i].b) + 1e-9);
      }
    }
  }
}

// The state and the gradient that the step reads are known exactly here, so one step is held to a
// few roundings even where they are kept in fewer bits.
TEST_P(Rules, OneStepEqualsTheOracleInAllTypes) {
  const Rule& rule = GetParam();
  const std::size_t count = 2100;
  for (const Types& types : all_types()) {
    Model model(rule, types, random_floats(count, 1, 1.0f));
    for (std::int64_t step = 1; step <= 3; ++step) {
      model.set_gradient(random_floats(count, static_cast<std::uint32_t>(step), 1.0f));
      const std::vector<float> before = model.weights();
      std::vector<Oracle> oracle(count);
      for (std::size_t i = 0; i < count; ++i) {
        oracle[i].w = before[i];
        if (!model.state.empty()) oracle[i].a = model.state_at(0, i);
        if (model.state.size() > 1) oracle[i].b = model.state_at(1, i);
        oracle[i].update(rule, 0.5 * double{model.gradient_at(i)}, step);
      }
      update::apply(rule, model.run(0, count, step, 0.5f));
      const std::vector<float> after = model.weights();
      const double ulp = types.state == DType::bf16 ? 0x1p-7 : 0x1p-22;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(after[i], oracle[i].w, 1e-6) << describe(types) << " element " << i;
        if (!model.state.empty()) {
          ASSERT_NEAR(model.state_at(0, i), oracle[i].a, ulp * std::fabs(oracle[i].a) + 1e-7);
        }
        if (model.state.size() > 1) {
          ASSERT_NEAR(model.state_at(1, i), oracle[i].b, ulp * std::fabs(oracle[i].b) + 1e-10);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rules, ::testing::ValuesIn(kRules));

TEST(BiasCorrection, EqualsFloat64OverAThousandSteps) {
  for (std::int64_t step = 1; step <= 1000; ++step) {
    const auto t = static_cast<double>(step);
    const update::AdamScalars s = update::scalars(AdamW{.learning_rate = 1.0}, 1.0f, step);
    EXPECT_NEAR(-1.0 / s.negative_step / (1 - std::pow(0.9, t)), 1.0, 1e-6);
    EXPECT_NEAR(s.bias2_root / std::sqrt(1 - std::pow(0.999, t)), 1.0, 1e-6);
    EXPECT_NEAR(update::power(0.999, step) / std::pow(0.999, t), 1.0, 1e-14);
  }
  EXPECT_EQ(update::power(0.999, 1'000'000'000'000), 0.0);
}

TEST(BiasCorrection, AThousandStepsOfAdamEqualFloat64) {
  const Rule rule = Adam{.learning_rate = 1e-3};
  Model model(rule, Types{}, {0.5f});
  Oracle oracle{.w = 0.5};
  for (std::int64_t step = 1; step <= 1000; ++step) {
    const float gradient = 0.1f + 0.05f * static_cast<float>(step % 7);
    model.set_gradient({gradient});
    update::apply(rule, model.run(0, 1, step));
    oracle.update(rule, gradient, step);
    ASSERT_NEAR(model.state_at(1, 0) / oracle.b, 1.0, 2e-5) << step;
    ASSERT_NEAR(model.weights()[0], oracle.w, 2e-5) << step;
  }
}

TEST(Clipping, EqualsGradientsDividedByTheNorm) {
  const Rule rule = AdamW{};
  Model clipped(rule, Types{}, random_floats(100, 1, 1.0f));
  Model divided(rule, Types{}, random_floats(100, 1, 1.0f));
  std::vector<float> gradients = random_floats(100, 2, 1.0f);
  clipped.set_gradient(gradients);
  for (float& gradient : gradients) gradient /= 4.0f;
  divided.set_gradient(gradients);
  update::apply(rule, clipped.run(0, 100, 1, 0.25f));
  update::apply(rule, divided.run(0, 100, 1));
  EXPECT_EQ(clipped.weights(), divided.weights());
}

TEST(CustomRule, SeesScaledGradientsItsStateAndItsPlace) {
  CustomRule custom;
  custom.name = "count";
  custom.state = {"seen", "last"};
  custom.learning_rate = 0.5;
  custom.update = [](const RuleRun& run) {
    for (std::size_t i = 0; i < run.weights.size(); ++i) {
      run.state[0][i] += 1.0f;
      run.state[1][i] = static_cast<float>(run.first_element + i);
      run.weights[i] -=
          static_cast<float>(run.learning_rate) * run.gradients[i] * static_cast<float>(run.step);
    }
  };
  const Rule rule = custom;
  for (const Types& types : all_types()) {
    const std::size_t count = 250;  // counted exactly in bf16 too
    Model model(rule, types, std::vector<float>(count, 1.0f));
    model.set_gradient(std::vector<float>(count, 0.5f));
    for (std::int64_t step = 1; step <= 2; ++step) {
      update::apply(rule, model.run(0, 100, step, 0.25f));
      update::apply(rule, model.run(100, count - 100, step, 0.25f));
    }
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(model.weights()[i], 1.0f - 0.5f * 0.125f * 3.0f) << describe(types);
      ASSERT_EQ(model.model_weight(i), 1.0f - 0.5f * 0.125f * 3.0f) << describe(types);
      ASSERT_EQ(model.state_at(0, i), 2.0f);
      ASSERT_EQ(model.state_at(1, i), static_cast<float>(i));
    }
  }
}

}  // namespace
}  // namespace ration
