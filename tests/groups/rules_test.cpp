// Every rule trains to the same bits at every stage, whatever the weights and moments are kept in.

#include "model.hpp"

namespace ration::test {
namespace {

struct Case {
  std::string name;
  Rule rule;
  Precision precision = {};
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

CustomRule momentum_rule(bool in_place = true) {
  return {.name = "heavy ball",
          .state = {"velocity", "count"},
          .learning_rate = 0.1,
          .update = [in_place](const RuleRun& run) {
            for (std::size_t i = 0; i < run.weights.size(); ++i) {
              run.state[0][i] = 0.5f * run.state[0][i] + run.gradients[i];
              run.state[1][i] += 1.0f;
              // The element and the step matter, so that a wrong one shows.
              const auto element = static_cast<float>(run.first_element + i);
              if (in_place)
                run.weights[i] -= static_cast<float>(run.learning_rate) * run.state[0][i] +
                                  1e-3f * element * static_cast<float>(run.step);
            }
          }};
}

class Rules : public testing::TestWithParam<Case> {};

TEST_P(Rules, TrainToTheSameBitsAtEveryStageAndTile) {
  TinyTrainer::Options options;
  options.rule = GetParam().rule;
  options.config.precision = GetParam().precision;
  options.config.stage = 0;
  const std::uint64_t start = train(3, 0, options);
  const std::uint64_t expected = train(3, 4, options);
  EXPECT_NE(start, expected);
  for (const int stage : {1, 2, 3}) {
    options.config.stage = stage;
    options.config.tile_elements = stage == 2 ? 1 : 0;
    EXPECT_EQ(train(3, 4, options), expected) << "stage " << stage;
  }
}

std::vector<Case> cases() {
  const std::vector<std::pair<std::string, Rule>> rules = {
      {"AdamW", AdamW{.learning_rate = 0.01}},
      {"Adam", Adam{.learning_rate = 0.01, .weight_decay = 0.1}},
      {"SGD", SGD{.learning_rate = 0.1, .weight_decay = 0.1}},
      {"Momentum", SGD{.learning_rate = 0.1, .momentum = 0.9}},
      {"Nesterov", SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}},
      {"Adagrad",
       Adagrad{.learning_rate = 0.1, .learning_rate_decay = 0.1, .initial_accumulator = 0.5}},
      {"Lion", Lion{.learning_rate = 0.01, .weight_decay = 0.1}},
      {"Custom", momentum_rule()}};
  std::vector<Case> result;
  for (const auto& [name, rule] : rules) {
    result.push_back({name, rule});
    result.push_back({name + "Bf16Moments", rule, {.moments = DType::bf16}});
    result.push_back({name + "Bf16", rule, Precision::bf16()});
    result.push_back({name + "SplitBf16Moments",
                      rule,
                      {.parameter = DType::bf16, .master = Master::split, .moments = DType::bf16}});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, Rules, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(CustomRule, SeesStateStepElementsAndTheGroupsRate) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {momentum_rule()}, {{"w", {50, 7}, 0}});
      std::vector<double> weights;
      for (const float w : model.read("w")) weights.push_back(w);
      std::vector<double> velocity(weights.size());
      for (int step = 0; step < 3; ++step) {
        const double rate = 0.1 / (step + 1);
        model.groups[0].set_learning_rate(rate);
        model.step();
        for (std::size_t i = 0; i < weights.size(); ++i) {
          double sum = 0;
          for (int rank = 0; rank < 3; ++rank)
            sum += static_cast<double>(gradient_at(step, rank, 0, i));
          velocity[i] = 0.5 * velocity[i] + sum / 3;
          weights[i] -= rate * velocity[i] + 1e-3 * static_cast<double>(i) * (step + 1);
        }
      }
      const std::vector<float> trained = model.read("w");
      const std::vector<float> moved = model.read("w", "velocity");
      for (std::size_t i = 0; i < weights.size(); ++i) {
        EXPECT_NEAR(trained[i], weights[i], 1e-5) << "stage " << stage << ", element " << i;
        EXPECT_NEAR(moved[i], velocity[i], 1e-6) << "stage " << stage << ", element " << i;
      }
      EXPECT_THAT(model.read("w", "count"), testing::Each(3.0f)) << "each element once a step";
    });
  }
}

TEST(Adagrad, StartsFromItsInitialAccumulator) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const DType moments : {DType::f32, DType::bf16}) {
      with_ranks(2, [&](const ProcessGroup& group) {
        GroupedModel model(group, {.stage = stage, .precision = {.moments = moments}},
                           {Adagrad{.learning_rate = 0.5, .initial_accumulator = 0.25}},
                           {{"w", {70}, 0}});
        EXPECT_THAT(model.read("w", "sum"), testing::Each(0.25f)) << "stage " << stage;
        const std::vector<float> before = model.read("w");
        model.step();
        const std::vector<float> after = model.read("w");
        for (std::size_t i = 0; i < after.size(); ++i) {
          const double g = (static_cast<double>(gradient_at(0, 0, 0, i)) +
                            static_cast<double>(gradient_at(0, 1, 0, i))) /
                           2;
          EXPECT_NEAR(after[i], before[i] - 0.5 * g / (std::sqrt(0.25 + g * g) + 1e-10), 1e-6);
        }
      });
    }
  }
}

TEST(Bf16Moments, StillDecayAtBeta2Of0999) {
  with_ranks(2, [](const ProcessGroup& group) {
    GroupedModel model(group, {.stage = 2, .precision = {.moments = DType::bf16}},
                       {AdamW{.learning_rate = 0.0, .beta2 = 0.999}}, {{"w", {4096}, 0}});
    double sum = 0;
    for (int step = 0; step < 200; ++step) {
      model.step();
      sum = 0.999 * sum;
      for (std::size_t i = 0; i < 4096; ++i) {
        const double g = (static_cast<double>(gradient_at(step, 0, 0, i)) +
                          static_cast<double>(gradient_at(step, 1, 0, i))) /
                         2;
        sum += 0.001 * g * g;
      }
    }
    double found = 0;
    for (const float v : model.read("w", "exp_avg_sq")) found += static_cast<double>(v);
    EXPECT_NEAR(found, sum, 2e-3 * sum) << "rounded to nearest it would stand still";
  });
}

}  // namespace
}  // namespace ration::test
