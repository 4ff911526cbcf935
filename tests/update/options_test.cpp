// A rule's options: bounds, names, bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "model.hpp"

namespace ration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Model;
using testing::Types;

void expect_refused(const Rule& rule, const char* text) {
  try {
    update::validate(rule);
    FAIL() << "accepted: " << text;
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(Options, ThatMakeNoSenseAreRefusedByName) {
  expect_refused(AdamW{.learning_rate = -1}, "AdamW: learning_rate is -1");
  expect_refused(AdamW{.learning_rate = NAN}, "AdamW: learning_rate is nan");
  expect_refused(AdamW{.beta1 = 1.0}, "AdamW: beta1 is 1; it must be in [0, 1)");
  expect_refused(Adam{.beta2 = -0.5}, "Adam: beta2 is -0.5");
  expect_refused(Adam{.epsilon = INFINITY}, "Adam: epsilon is inf");
  expect_refused(SGD{.momentum = -0.1}, "SGD: momentum is -0.1");
  expect_refused(SGD{.nesterov = true}, "SGD: nesterov needs a momentum");
  expect_refused(SGD{.momentum = 0.9, .dampening = 0.1, .nesterov = true}, "no dampening");
  expect_refused(Adagrad{.initial_accumulator = -1}, "Adagrad: initial_accumulator is -1");
  expect_refused(Lion{.weight_decay = -1}, "Lion: weight_decay is -1");
}

TEST(Options, OfACustomRuleAreChecked) {
  CustomRule rule;
  expect_refused(rule, "the name is empty");
  rule.name = "mine";
  expect_refused(rule, "mine: the update function is not set");
  rule.update = [](const RuleRun&) {};
  EXPECT_NO_THROW(update::validate(rule));
  rule.state = {"a", "b", "c", "d", "e"};
  expect_refused(rule, "mine: 5 state arrays; at most 4");
  rule.state = {"a", "a"};
  expect_refused(rule, "mine: two state arrays are called \"a\"");
  rule.state = {""};
  expect_refused(rule, "mine: state array 0 has no name");
}

TEST(Options, DefaultsAreAccepted) {
  for (const Rule& rule :
       {Rule(AdamW{}), Rule(Adam{}), Rule(SGD{}), Rule(Adagrad{}), Rule(Lion{})}) {
    EXPECT_NO_THROW(update::validate(rule));
  }
  for (const Rule& rule : testing::kRules) EXPECT_NO_THROW(update::validate(rule));
}

TEST(State, HasPyTorchsNames) {
  EXPECT_THAT(update::state_names(AdamW{}), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(update::state_names(Adam{}), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(update::state_names(SGD{}), IsEmpty());
  EXPECT_THAT(update::state_names(SGD{.momentum = 0.9}), ElementsAre("momentum_buffer"));
  EXPECT_THAT(update::state_names(Adagrad{}), ElementsAre("sum"));
  EXPECT_THAT(update::state_names(Lion{}), ElementsAre("exp_avg"));
  EXPECT_EQ(update::initial_state(Adagrad{.initial_accumulator = 0.25}, 0), 0.25f);
  EXPECT_EQ(update::initial_state(AdamW{}, 1), 0.0f);
}

TEST(LearningRate, IsReadAndWrittenWhateverTheRule) {
  for (Rule rule : testing::kRules) {
    update::set_learning_rate(rule, 0.125);
    EXPECT_EQ(update::learning_rate(rule), 0.125) << update::name_of(rule);
  }
}

TEST(Options, DifferInBytesWheneverOneDiffers) {
  const auto bytes = [](const Rule& rule) {
    std::vector<std::byte> out;
    update::append_options(rule, out);
    return out;
  };
  std::vector<Rule> rules(std::begin(testing::kRules), std::end(testing::kRules));
  rules.insert(rules.end(), {AdamW{}, Adam{}, Adam{.weight_decay = 1e-2}, AdamW{.beta1 = 0.8},
                             AdamW{.epsilon = 1e-6}, SGD{}, SGD{.momentum = 0.9},
                             SGD{.momentum = 0.9, .nesterov = true}, Adagrad{},
                             Adagrad{.initial_accumulator = 0.1}, Lion{}, Lion{.beta2 = 0.98},
                             CustomRule{"a", {}, 0.1, {}}, CustomRule{"b", {}, 0.1, {}},
                             CustomRule{"a", {"s"}, 0.1, {}}, CustomRule{"a", {}, 0.2, {}}});
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(bytes(rules[i]), bytes(rules[j])) << i << " " << j;
    EXPECT_EQ(bytes(rules[i]), bytes(rules[i]));
  }
}

TEST(Runs, OfTypesThatMeanNothingAreRefused) {
  Model model(AdamW{}, Types{}, {1.0f});
  const auto refuse = [&](auto change, const char* text) {
    update::Run run = model.run(0, 1, 1);
    change(run);
    try {
      update::apply(AdamW{}, run);
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refuse([](update::Run& run) { run.gradient_type = DType::f64; }, "gradients are f64");
  refuse([](update::Run& run) { run.weight_type = DType::i64; }, "weights are i64");
  refuse([](update::Run& run) { run.weight_type = DType::bf16; }, "bf16 weights need a master");
  refuse([](update::Run& run) { run.weight_kind = update::WeightKind::split; },
         "needs bf16 weights");
  refuse([](update::Run& run) { run.state_type = DType::f16; }, "moments are f16");
  refuse([](update::Run& run) { run.step = 0; }, "step is 0");
}

TEST(Runs, OfNoElementsAreOrdinary) {
  for (const Rule& rule : testing::kRules) {
    for (const Types& types : testing::all_types()) {
      Model model(rule, types, {1.0f});
      update::Run run = model.run(0, 0, 1);
      update::apply(rule, run);
      EXPECT_EQ(model.weights()[0], 1.0f);
    }
  }
}

}  // namespace
}  // namespace ration
