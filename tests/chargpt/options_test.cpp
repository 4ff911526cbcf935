// The command line: what it means, and what is refused in one line.

#include "options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace chargpt {
namespace {

using testing::HasSubstr;
using testing::Not;

Options parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "chargpt");
  flags.insert(flags.end(), {"--text", "/dev/null"});
  return parse_options(static_cast<int>(flags.size()), flags.data());
}

void expect_refused(const std::vector<const char*>& flags, const std::string& reason) {
  try {
    parse(flags);
    ADD_FAILURE() << "accepted " << testing::PrintToString(flags);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.code, 2);
    EXPECT_THAT(error.what(), HasSubstr(reason));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n"))) << "must be one line";
  }
}

TEST(Options, DefaultsAreThoseOfTheDemo) {
  const Options options = parse({});
  EXPECT_EQ(options.config.stage, 3);
  EXPECT_EQ(options.batch, 16);
  EXPECT_EQ(options.shape.sequence, 64);
  EXPECT_EQ(options.shape.layers, 4);
  EXPECT_EQ(options.shape.width, 128);
  EXPECT_EQ(options.shape.heads, 4);
  EXPECT_EQ(options.config.precision.parameter, ration::DType::f32);
  const auto rule = std::get<ration::AdamW>(rule_of(options, options.weight_decay));
  EXPECT_EQ(rule.beta1, 0.9);
  EXPECT_EQ(rule.beta2, 0.95);
  EXPECT_EQ(rule.weight_decay, 0.1);
}

TEST(Options, ReachTheOptimizer) {
  const Options options = parse({"--stage", "1", "--dtype", "bf16", "--master", "split",
                                 "--moments", "bf16", "--accumulation", "sharded", "--micro-steps",
                                 "2", "--optimizer", "lion", "--lr", "0.5"});
  EXPECT_EQ(options.config.stage, 1);
  EXPECT_EQ(options.config.precision.parameter, ration::DType::bf16);
  EXPECT_EQ(options.config.precision.master, ration::Master::split);
  EXPECT_EQ(options.config.precision.moments, ration::DType::bf16);
  EXPECT_EQ(options.config.accumulation, ration::Accumulation::sharded);
  EXPECT_EQ(options.config.micro_steps, 2);
  EXPECT_EQ(std::get<ration::Lion>(rule_of(options, 0)).learning_rate, 0.5);
}

TEST(Options, EveryOptimizerHasItsRule) {
  EXPECT_TRUE(std::holds_alternative<ration::AdamW>(rule_of(parse({}), 0)));
  EXPECT_TRUE(std::holds_alternative<ration::Adam>(rule_of(parse({"--optimizer", "adam"}), 0)));
  EXPECT_TRUE(std::holds_alternative<ration::SGD>(rule_of(parse({"--optimizer", "sgd"}), 0)));
  EXPECT_TRUE(
      std::holds_alternative<ration::Adagrad>(rule_of(parse({"--optimizer", "adagrad"}), 0)));
}

TEST(Options, WrongOnesAreRefused) {
  expect_refused({"--stage", "4"}, "--stage");
  expect_refused({"--stage", "two"}, "--stage");
  expect_refused({"--dtype", "f64"}, "--dtype");
  expect_refused({"--optimizer", "rmsprop"}, "--optimizer");
  expect_refused({"--schedule", "linear"}, "--schedule");
  expect_refused({"--steps", "-1"}, "--steps");
  expect_refused({"--ranks", "0"}, "--ranks");
  expect_refused({"--lr", "-0.1"}, "--lr");
  expect_refused({"--frobnicate"}, "--frobnicate");
  expect_refused({"extra"}, "extra");
}

TEST(Options, ThatContradictEachOtherAreRefused) {
  expect_refused({"--width", "130"}, "--width 130 is not divisible by --heads 4");
  expect_refused({"--master", "split"}, "--dtype bf16");
  expect_refused({"--ranks", "3"}, "--batch 16 is not divisible by 3 ranks x 1 micro-steps");
  expect_refused({"--ranks", "4", "--micro-steps", "8"}, "4 ranks x 8 micro-steps");
}

TEST(Options, OutputsThatCannotBeWrittenAreRefusedAtOnce) {
  expect_refused({"--report", "/no/such/folder/r.json"}, "/no/such/folder");
  expect_refused({"--trace", "/no/such/folder/t.json"}, "--trace");
  expect_refused({"--report", "/tmp"}, "is a folder");
}

TEST(Options, HelpIsNoFault) {
  try {
    parse({"--help"});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.code, 0);
    EXPECT_THAT(error.what(), HasSubstr("--stage"));
  }
}

TEST(LearningRate, WarmsUpThenFallsToATenth) {
  const Options options = parse({"--lr", "1", "--warmup", "10", "--steps", "110"});
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 60), 0.55);
  EXPECT_NEAR(learning_rate_at(options, 110), 0.1, 1e-12);
}

TEST(LearningRate, StaysWhereTheScheduleIsConstant) {
  const Options options =
      parse({"--lr", "1", "--warmup", "0", "--schedule", "constant", "--steps", "100"});
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 99), 1.0);
}

}  // namespace
}  // namespace chargpt
