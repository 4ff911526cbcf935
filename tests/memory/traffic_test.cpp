// Bytes sent, counted against the formulas.

#include "engine/engine.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

struct Case {
  DType type;
  int micro_steps;
  Accumulation accumulation;
  ThreadsOptions::Mode mode;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c.type) << ", " << c.micro_steps << " micro-steps, "
       << (c.accumulation == Accumulation::local ? "local" : "sharded")
       << (c.mode == ThreadsOptions::Mode::streams ? ", streams" : ", direct");
}

class Traffic : public testing::TestWithParam<Case> {};

/// Bytes each rank sends when all of the model, padded, is gathered (or reduced) once as `type`.
std::uint64_t once(const ShardedOptimizer& optimizer, DType type) {
  std::uint64_t elements = 0;
  const Layout& layout = optimizer.engine().context().layout;
  for (const FlatInfo& flat : layout.flats)
    elements += static_cast<std::uint64_t>(flat.shard * (layout.world - 1));
  return elements * size_of(type);
}

std::uint64_t step_bytes(TinyTrainer& trainer) {
  const std::uint64_t before = trainer.optimizer().traffic().sent_bytes;
  trainer.step();
  return trainer.optimizer().traffic().sent_bytes - before;
}

TinyTrainer::Options options_of(const Case& c, int stage) {
  return {.config = {.stage = stage,
                     .precision = {.parameter = c.type},
                     .micro_steps = c.micro_steps,
                     .accumulation = c.accumulation},
          .micro_steps = c.micro_steps};
}

std::uint64_t reduces(const Case& c) {
  return c.accumulation == Accumulation::local ? 1 : static_cast<std::uint64_t>(c.micro_steps);
}

DType reduce_type(DType type) {
  return type == DType::bf16 ? DType::bf16 : DType::f32;
}

TEST_P(Traffic, OfStages0To2IsExactlyOnePlusRModels) {
  const Case c = GetParam();
  for (const int stage : {0, 1, 2}) {
    with_ranks(
        3,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options_of(c, stage));
          // Stage 0 gathers the reduced gradients (sums of several, sharded, in fp32), the others
          // the parameters.
          const bool sums = c.micro_steps > 1 && c.accumulation == Accumulation::sharded;
          const DType gathered = stage > 0 ? c.type : sums ? DType::f32 : reduce_type(c.type);
          const std::uint64_t expected =
              reduces(c) * once(trainer.optimizer(), reduce_type(c.type)) +
              once(trainer.optimizer(), gathered);
          for (int step = 0; step < 3; ++step)
            EXPECT_EQ(step_bytes(trainer), expected) << "stage " << stage << ", step " << step;
        },
        {.mode = c.mode});
  }
}

TEST_P(Traffic, OfStage3IsAtMostTwiceMPlusRModels) {
  const Case c = GetParam();
  with_ranks(3,
             [&](const ProcessGroup& group) {
               TinyTrainer trainer(group, options_of(c, 3));
               const std::uint64_t reduced =
                   reduces(c) * once(trainer.optimizer(), reduce_type(c.type));
               const std::uint64_t gathered = 2 * static_cast<std::uint64_t>(c.micro_steps) *
                                              once(trainer.optimizer(), c.type);
               for (int step = 0; step < 3; ++step) {
                 const std::uint64_t bytes = step_bytes(trainer);
                 EXPECT_LE(bytes, reduced + gathered) << "step " << step;
                 EXPECT_GE(bytes, reduced + once(trainer.optimizer(), c.type)) << "step " << step;
               }
             },
             {.mode = c.mode});
}

INSTANTIATE_TEST_SUITE_P(
    All, Traffic, testing::ValuesIn([] {
      std::vector<Case> cases;
      for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
        for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
          cases.push_back({type, 1, Accumulation::local, mode});
          cases.push_back({type, 3, Accumulation::local, mode});
          cases.push_back({type, 3, Accumulation::sharded, mode});
        }
      }
      return cases;
    }()));

TEST(TrafficOf, Stage3WithoutUnitsKeptWholeIsExactWhereGathersAreMatched) {
  with_ranks(3,
             [](const ProcessGroup& group) {
               auto model = tiny_model();
               model[0].keep_whole = false;
               TinyTrainer trainer(group, {.config = {.stage = 3}, .model = model});
               const std::uint64_t model_bytes = once(trainer.optimizer(), DType::f32);
               EXPECT_EQ(step_bytes(trainer), 3 * model_bytes);
               EXPECT_EQ(step_bytes(trainer), 3 * model_bytes);
             },
             {.mode = ThreadsOptions::Mode::streams});
}

TEST(TrafficOf, ControlIsOneSmallHeaderAStep) {
  for (const int stage : {0, 3}) {
    with_ranks(4, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = stage}});
      ShardedOptimizer& optimizer = trainer.optimizer();
      EXPECT_EQ(optimizer.traffic().control_bytes, 0u);
      trainer.step();
      const std::uint64_t first = optimizer.traffic().control_bytes;
      EXPECT_GT(first, 0u);
      EXPECT_LT(first, 2048u);
      trainer.step();
      const std::uint64_t second = optimizer.traffic().control_bytes - first;
      EXPECT_LT(second, 2048u);
      trainer.step();
      EXPECT_EQ(optimizer.traffic().control_bytes - first - second, second);
      {
        const Evaluation evaluation = optimizer.evaluation();
        const Gathered weights = trainer.units()[1].gather();
      }
      (void)optimizer.digest();
      (void)optimizer.read(optimizer.parameter("wte"), "exp_avg");
      EXPECT_EQ(optimizer.traffic().control_bytes, first + 2 * second) << "only steps have headers";
    });
  }
}

TEST(TrafficOf, OneRankIsNothing) {
  for (const int stage : {0, 3}) {
    with_ranks(1, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = stage}});
      EXPECT_EQ(step_bytes(trainer), 0u);
    });
  }
}

TEST(TrafficOf, TimeBeforeARelayoutStaysCounted) {
  with_ranks(2, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = 3}});
    trainer.step();
    const std::uint64_t before = trainer.optimizer().traffic().sent_bytes;
    trainer.optimizer().relayout();
    EXPECT_GE(trainer.optimizer().traffic().sent_bytes, before);
  });
}

}  // namespace
}  // namespace ration::test
