// What becomes of gradients: micro-steps, unused and frozen parameters, types and tiny numbers.

#include <cstring>
#include <ranges>

#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

// An item of a global batch of 8, by step.
double mean_of_batch(int step, int parameter, std::int64_t element) {
  double sum = 0;
  for (int item = 0; item < 8; ++item) sum += item_gradient(step, item, parameter, element);
  return sum / 8;
}

TEST(MicroSteps, FourOfBatchTwoAreOneStepOfBatchEight) {
  constexpr int kRanks = 2;
  const auto train_on = [&](TinyTrainer::Options options, const Setting& setting) {
    options.rule = SGD{.learning_rate = 0.1};
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          Oracle oracle = Oracle::of(trainer.optimizer());
          for (int step = 0; step < 3; ++step) {
            const StepReport report = trainer.step();
            const double norm =
                oracle.step(0.1, [&](int p, std::int64_t i) { return mean_of_batch(step, p, i); });
            EXPECT_NEAR(report.gradient_norm, norm, 1e-6 * norm);
          }
          EXPECT_EQ(first_difference(values_of(trainer.optimizer()), oracle.weights()), "");
        },
        setting.threads);
  };
  at_every_stage(
      [&](const Setting& setting) {
        TinyTrainer::Options four = options_of(setting, 4);
        four.gradient = [](int step, int micro, int rank, int p, std::int64_t i, float) {
          return item_gradient(step, micro * kRanks + rank, p, i);
        };
        train_on(four, setting);
        TinyTrainer::Options one = options_of(setting);
        one.gradient = [](int step, int, int rank, int p, std::int64_t i, float) {
          float sum = 0;
          for (int micro = 0; micro < 4; ++micro)
            sum += item_gradient(step, micro * kRanks + rank, p, i);
          return sum / 4;
        };
        train_on(one, setting);
      },
      4);
}

// The sum of a single unit's gradient, every element `value` in every micro-step and on every rank,
// as spans show it.
void expect_sum(const Setting& setting, Precision precision, int micro_steps, int ranks,
                float value, float sum, DType type) {
  TinyTrainer::Options options = options_of(setting, micro_steps);
  options.model = {{"only", {{"w", {70}}, {"b", {5}}}}};
  options.config.precision = precision;
  options.gradient = [&](auto...) { return value; };
  with_ranks(
      ranks,
      [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options);
        const Unit unit = trainer.units().front();
        for (int i = 0; i < micro_steps; ++i) {
          trainer.optimizer().micro_step(i, micro_steps).begin_backward();
          trainer.backward(unit, i);
        }
        Gradients gradients = trainer.optimizer().reduce_gradients();
        for (const GradientSpan& span : gradients.spans()) {
          EXPECT_EQ(span.type, type);
          with_type(span.type, [&](auto t) {
            const auto* data = static_cast<const decltype(t)*>(span.data);
            for (std::int64_t i = 0; i < span.count; ++i)
              EXPECT_EQ(static_cast<float>(data[i]), sum) << span.parameter.name() << " " << i;
          });
        }
        trainer.optimizer().apply(gradients, {.skip = true});
      },
      setting.threads);
}

TEST(Types, SixtyFourMicroStepsOfBf16AreAddedInFp32) {
  at_every_stage(
      [](const Setting& setting) {
        const Precision precision{.parameter = DType::bf16, .reduce = DType::f32};
        expect_sum(setting, precision, 64, 1, 1.0078125f, 64.5f, DType::f32);
        expect_sum(setting, precision, 64, 2, 1.0078125f, 129.0f, DType::f32);
      },
      64);
}

TEST(Types, Fp32GradientsAreRoundedToTheReduceTypeBeforeTheSum) {
  at_every_stage([](const Setting& setting) {
    const Precision precision{.gradient = DType::f32, .reduce = DType::bf16};
    // Half way between two bf16 numbers, to the even one: down, and up.
    expect_sum(setting, precision, 1, 2, 1.00390625f, 2.0f, DType::bf16);
    expect_sum(setting, precision, 1, 2, 1.01171875f, 2.03125f, DType::bf16);
    expect_sum(setting, {.parameter = DType::bf16, .gradient = DType::f32}, 1, 2, 1.00390625f,
               2.0078125f, DType::f32);
  });
}

TEST(Unused, ByAllRanksKeepsBitsAndStateDespiteMomentumAndDecay) {
  at_every_stage([](const Setting& setting) {
    TinyTrainer::Options options = options_of(setting);
    options.rule = AdamW{.learning_rate = 0.01, .weight_decay = 0.5};
    with_ranks(
        2,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          ShardedOptimizer& optimizer = trainer.optimizer();
          trainer.step();  // moments are not zero
          const Snapshot unused = snapshot_of(optimizer, "h.0.w");
          const Snapshot used = snapshot_of(optimizer, "h.0.b");
          optimizer.micro_step().begin_backward();
          for (const Unit& unit : std::views::reverse(trainer.units())) {
            const Gathered weights = unit.gather();
            for (const Parameter& parameter : trainer.parameters_of(unit)) {
              if (parameter.name() != "h.0.w") trainer.write_gradient(unit, weights, parameter, 0);
            }
            unit.gradients_ready();
          }
          optimizer.step();
          EXPECT_EQ(snapshot_of(optimizer, "h.0.w"), unused);
          EXPECT_NE(snapshot_of(optimizer, "h.0.b"), used);
          EXPECT_EQ(optimizer.step_count(optimizer.parameter("h.0.w")), 1);
          EXPECT_EQ(optimizer.step_count(optimizer.parameter("h.0.b")), 2);
        },
        setting.threads);
  });
}

TEST(Unused, OnRankZeroOnlyCountsAsZeroThere) {
  constexpr int kRanks = 3;
  at_every_stage([](const Setting& setting) {
    TinyTrainer::Options options = options_of(setting);
    options.rule = SGD{.learning_rate = 0.1};
    options.gradient = [](int step, int, int rank, int p, std::int64_t i, float) {
      return item_gradient(step, rank, p, i);
    };
    PerRank<Values> values(kRanks);
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          Oracle oracle = Oracle::of(trainer.optimizer());
          // Twice: the memory of the second step still holds the first one's gradient.
          for (int step = 0; step < 2; ++step) {
            trainer.optimizer().micro_step().begin_backward();
            for (const Unit& unit : std::views::reverse(trainer.units())) {
              const Gathered weights = unit.gather();
              for (const Parameter& parameter : trainer.parameters_of(unit)) {
                if (step == 1 && group.rank() == 0 && parameter.name() == "h.1.w") continue;
                trainer.write_gradient(unit, weights, parameter, 0);
              }
              unit.gradients_ready();
            }
            trainer.optimizer().step();
            oracle.step(0.1, [&](int p, std::int64_t i) {
              double sum = 0;
              for (int rank = 0; rank < kRanks; ++rank) {
                if (step == 1 && rank == 0 && p == 5) continue;  // h.1.w
                sum += item_gradient(0, rank, p, i);
              }
              return sum / kRanks;
            });
          }
          values[group] = values_of(trainer.optimizer());
          EXPECT_EQ(first_difference(values[group], oracle.weights()), "");
        },
        setting.threads);
    EXPECT_TRUE(values.alike());
  });
}

TEST(UsedTwice, InAForwardIsReducedOnceWithTheSum) {
  at_every_stage([](const Setting& setting) {
    TinyTrainer::Options options = options_of(setting);
    options.rule = SGD{.learning_rate = 0.1};
    options.gradient = [](int, int, int rank, int p, std::int64_t i, float) {
      return item_gradient(0, rank, p, i);
    };
    with_ranks(
        2,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          Oracle oracle = Oracle::of(trainer.optimizer());
          trainer.optimizer().micro_step().begin_backward();
          for (const Unit& unit : std::views::reverse(trainer.units())) {
            const Gathered weights = unit.gather();
            for (const Parameter& parameter : trainer.parameters_of(unit)) {
              trainer.write_gradient(unit, weights, parameter, 0);
              trainer.write_gradient(unit, weights, parameter, 0);
            }
            unit.gradients_ready();
          }
          trainer.optimizer().step();
          oracle.step(0.1, [](int p, std::int64_t i) {
            return static_cast<double>(item_gradient(0, 0, p, i)) + item_gradient(0, 1, p, i);
          });
          EXPECT_EQ(first_difference(values_of(trainer.optimizer()), oracle.weights()), "");
        },
        setting.threads);
  });
}

TEST(Denormals, AreTheSameInAProgramThatFlushesThemToZero) {
  constexpr unsigned kFlush = 0x8040;  // to zero, and denormals are zero
  at_every_stage(
      [](const Setting& setting) {
        const auto train_with = [&](bool flush) {
          Snapshot result;
          double norm = 0;
          with_ranks(
              2,
              [&](const ProcessGroup& group) {
                const unsigned before = __builtin_ia32_stmxcsr();
                if (flush) __builtin_ia32_ldmxcsr(before | kFlush);
                {
                  ShardedOptimizer optimizer(group, options_of(setting, 2).config);
                  optimizer.add_group(SGD{.learning_rate = 1e37, .momentum = 0.5});
                  const Unit unit = optimizer.add_unit("only", {{.name = "w", .shape = {130}}});
                  optimizer.initialize(constant(0.5f));
                  for (int i = 0; i < 2; ++i) {
                    optimizer.micro_step(i, 2).begin_backward();
                    float* gradient = unit.gradient<float>(unit["w"]);
                    const std::uint32_t tiny = 0x000116c2;  // 1e-40
                    for (int e = 0; i == 0 && e < 130; ++e)
                      std::memcpy(gradient + e, &tiny, sizeof tiny);
                    unit.gradients_ready();
                  }
                  const StepReport report = optimizer.step();
                  const Snapshot mine = snapshot_of(optimizer);
                  if (group.rank() == 0) {
                    result = mine;
                    norm = report.gradient_norm;
                  }
                }
                __builtin_ia32_ldmxcsr(before);
              },
              setting.threads);
          EXPECT_GT(norm, 0);
          return result;
        };
        const Snapshot expected = train_with(false);
        const Snapshot flushed = train_with(true);
        EXPECT_EQ(flushed, expected);
        EXPECT_NE(std::bit_cast<float>(expected.bits.at("w/parameter")[0]), 0.5f);
      },
      2);
}

}  // namespace
}  // namespace ration::test
