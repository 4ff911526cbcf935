// The same bits at every stage.

#include <gtest/gtest.h>

#include "support/training.hpp"

namespace ration::test {
namespace {

struct Case {
  int ranks;
  DType type;
  Master master;
  int micro_steps;
  Accumulation accumulation;
};

class Stages : public testing::TestWithParam<Case> {};

TinyTrainer::Options options_of(const Case& c, int stage) {
  TinyTrainer::Options options;
  options.config.stage = stage;
  options.config.precision.parameter = c.type;
  options.config.precision.master = c.master;
  options.config.micro_steps = c.micro_steps;
  options.config.accumulation = c.accumulation;
  options.micro_steps = c.micro_steps;
  options.clip = 1.0;
  return options;
}

TEST_P(Stages, GiveTheSameBits) {
  const Case c = GetParam();
  const std::uint64_t expected = train(c.ranks, 4, options_of(c, 0));
  const std::uint64_t untrained = train(c.ranks, 0, options_of(c, 0));
  EXPECT_NE(expected, untrained);
  for (const int stage : {1, 2, 3})
    EXPECT_EQ(train(c.ranks, 4, options_of(c, stage)), expected) << "stage " << stage;
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_EQ(train(c.ranks, 4, options_of(c, stage), {.mode = ThreadsOptions::Mode::streams}),
              expected)
        << "stage " << stage << ", streams of their own";
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const auto accumulation : {Accumulation::local, Accumulation::sharded}) {
      for (const int micro_steps : {1, 3}) {
        result.push_back({ranks, DType::f32, Master::fp32, micro_steps, accumulation});
        result.push_back({ranks, DType::bf16, Master::fp32, micro_steps, accumulation});
        result.push_back({ranks, DType::bf16, Master::split, micro_steps, accumulation});
        result.push_back({ranks, DType::f16, Master::fp32, micro_steps, accumulation});
      }
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, Stages, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return std::to_string(c.ranks) + "ranks_" + std::string(name_of(c.type)) +
         (c.master == Master::split ? "split_" : "_") + std::to_string(c.micro_steps) + "micro_" +
         (c.accumulation == Accumulation::local ? "local" : "sharded");
});

}  // namespace
}  // namespace ration::test
