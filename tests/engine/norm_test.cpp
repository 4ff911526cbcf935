// One norm, one clip, one decision about what is not finite.

#include <limits>

#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

constexpr int kNormRanks = 3;

// Units of mixed types, a frozen and an empty parameter, one with a second name, padding
// everywhere.
struct Mixed {
  Mixed(const ProcessGroup& group, const Setting& setting)
      : optimizer(group, config(setting)), rank(group.rank()) {
    optimizer.add_group(AdamW{.learning_rate = 0.01});
    units.push_back(optimizer.add_unit(
        "embedding", {{.name = "wte", .shape = {33}}, {.name = "head", .tied_to = "wte"}},
        {.keep_whole = true}));
    units.push_back(
        optimizer.add_unit("block", {{.name = "w", .shape = {70}},
                                     {.name = "norm", .shape = {65}, .dtype = DType::f32},
                                     {.name = "none", .shape = {0}},
                                     {.name = "frozen", .shape = {9}, .trainable = false},
                                     {.name = "bias", .shape = {1}}}));
    optimizer.initialize(normal(0.5, 3));
  }
  static Config config(const Setting& setting) {
    Config config = options_of(setting).config;
    config.precision.parameter = DType::bf16;
    return config;
  }
  // Multiples of 1/64 that bf16 holds and whose sums it holds too.
  static float value(int rank, std::int64_t element) {
    return static_cast<float>((element * 7 + rank * 3) % 17 - 8) / 64.0f;
  }
  // Returns the float64 norm of the mean.
  double backward() {
    double squares = 0;
    optimizer.micro_step().begin_backward();
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      for (const Parameter& parameter : optimizer.parameters()) {
        if (parameter.name() == "frozen" ||
            (parameter.name() == "wte") != (unit->name() != "block"))
          continue;
        with_type(parameter.dtype(), [&](auto t) {
          auto* gradient = unit->template gradient<decltype(t)>(parameter);
          for (std::int64_t i = 0; i < parameter.count(); ++i) {
            gradient[i] = decltype(t)(value(rank, i));
            double mean = 0;
            for (int r = 0; r < kNormRanks; ++r)
              mean += value(r, i) / static_cast<double>(kNormRanks);
            squares += mean * mean;
          }
        });
      }
      unit->gradients_ready();
    }
    return std::sqrt(squares);
  }
  ShardedOptimizer optimizer;
  int rank;
  std::vector<Unit> units;
};

TEST(Norm, CountsEachElementOnceWithTiedFrozenAndMixedTypes) {
  std::vector<double> norms;
  std::vector<Snapshot> snapshots;
  at_every_stage([&](const Setting& setting) {
    PerRank<double> seen(kNormRanks);
    PerRank<Snapshot> after(kNormRanks);
    with_ranks(
        kNormRanks,
        [&](const ProcessGroup& group) {
          Mixed mixed(group, setting);
          const double expected = mixed.backward();
          seen[group] = mixed.optimizer.step().gradient_norm;
          EXPECT_NEAR(seen[group], expected, 1e-6 * expected);
          after[group] = snapshot_of(mixed.optimizer);
        },
        setting.threads);
    EXPECT_TRUE(seen.alike());
    EXPECT_TRUE(after.alike());
    norms.push_back(seen.first());
    snapshots.push_back(after.first());
  });
  for (const double norm : norms) EXPECT_EQ(norm, norms.front());
  for (const Snapshot& snapshot : snapshots) EXPECT_EQ(snapshot, snapshots.front());
}

TEST(Clip, AtOneWithNormFourUpdatesByAQuarter) {
  at_every_stage([](const Setting& setting) {
    TinyTrainer::Options options = options_of(setting);
    options.rule = SGD{.learning_rate = 0.5};
    options.gradient = [](int, int, int, int p, std::int64_t element, float) {
      return p < 4 && element == 0 ? 2.0f : 0.0f;
    };
    TinyTrainer::Options quarter = options;
    quarter.gradient = [](int, int, int, int p, std::int64_t element, float) {
      return p < 4 && element == 0 ? 0.5f : 0.0f;
    };
    options.clip = 1.0;
    quarter.clip = 1.0;
    EXPECT_EQ(train(2, 2, options, setting.threads), train(2, 2, quarter, setting.threads));
    with_ranks(
        2,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          Oracle oracle = Oracle::of(trainer.optimizer());
          EXPECT_EQ(trainer.step().gradient_norm, 4.0);
          const auto mean = [](int p, std::int64_t element) {
            return p < 4 && element == 0 ? 2.0 : 0.0;
          };
          EXPECT_EQ(oracle.step(0.5, mean, 1.0), 4.0);
          EXPECT_EQ(first_difference(values_of(trainer.optimizer()), oracle.weights()), "");
        },
        setting.threads);
  });
}

TEST(Norm, NeitherFlushesNorOverflows) {
  at_every_stage([](const Setting& setting) {
    for (const float large : {0.0f, 1e30f}) {
      with_ranks(
          2,
          [&](const ProcessGroup& group) {
            TinyTrainer::Options options = options_of(setting);
            options.gradient = [=](int, int, int, int p, std::int64_t element, float) {
              return p > 2 ? 0.0f : element == 1 ? large : 1e-30f;
            };
            TinyTrainer trainer(group, options);
            Oracle oracle = Oracle::of(trainer.optimizer());
            const double expected = oracle.step(0, [&](int p, std::int64_t element) {
              return static_cast<double>(options.gradient(0, 0, 0, p, element, 0));
            });
            const StepReport report = trainer.step();
            EXPECT_FALSE(report.skipped);
            EXPECT_GT(report.gradient_norm, 0);
            EXPECT_NEAR(report.gradient_norm / expected, 1, 1e-6);
          },
          setting.threads);
    }
  });
}

// Step, overflow in one element on one rank, step: nothing of the second shows but the loss scale.
void expect_skipped(const Setting& setting, Precision precision, float bad, int bad_rank,
                    int bad_parameter) {
  TinyTrainer::Options options = options_of(setting);
  options.config.precision = precision;
  options.config.loss_scale = {.initial = 1024, .dynamic = true, .growth_interval = 2};
  const GradientOf scaled = [](int step, int, int rank, int p, std::int64_t i, float) {
    return item_gradient(step, rank, p, i) / 4;
  };
  options.gradient = [=](int step, int micro, int rank, int p, std::int64_t i, float w) {
    if (step == 1 && rank == bad_rank && p == bad_parameter && i == 0) return bad;
    return scaled(step, micro, rank, p, i, w);
  };
  PerRank<std::vector<double>> scales(kNormRanks);
  with_ranks(
      kNormRanks,
      [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options);
        ShardedOptimizer& optimizer = trainer.optimizer();
        std::vector<double>& seen = scales[group];
        EXPECT_FALSE(trainer.step().skipped);
        seen.push_back(optimizer.loss_scale());
        const Snapshot before = snapshot_of(optimizer);
        const StepReport report = trainer.step();
        EXPECT_TRUE(report.skipped);
        EXPECT_FALSE(std::isfinite(report.gradient_norm));
        EXPECT_EQ(report.batches, kNormRanks);
        EXPECT_EQ(report.step, 2);
        EXPECT_EQ(snapshot_of(optimizer), before);
        seen.push_back(report.loss_scale);
        for (int i = 0; i < 2; ++i) {
          const StepReport good = trainer.step();
          EXPECT_FALSE(good.skipped);
          seen.push_back(good.loss_scale);
        }
        EXPECT_NE(snapshot_of(optimizer).bits, before.bits);
        EXPECT_EQ(optimizer.step_count(optimizer.parameter("ln_f.w")), 3);
      },
      setting.threads);
  EXPECT_TRUE(scales.alike());
  // Backed off, and two good steps later grown again: the good one before did not count.
  EXPECT_EQ(scales.first(), (std::vector<double>{1024, 512, 512, 1024}));
}

TEST(Overflow, OnOneRankSkipsAllAndKeepsEveryBit) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  at_every_stage([&](const Setting& setting) {
    // Element 0 of "ln_f.w" (parameter 11) is owned by rank 0 alone.
    expect_skipped(setting, Precision::fp16(), 1e6f, 1, 11);  // more than fp16 can hold
    expect_skipped(setting, Precision::fp16(), -kInf, 2, 11);
    expect_skipped(setting, Precision::bf16(), kInf, 0, 0);
    expect_skipped(setting, Precision::bf16(), kNan, 2, 11);
    expect_skipped(setting, Precision::fp32(), kNan, 1, 5);
    expect_skipped(setting, {.parameter = DType::bf16, .master = Master::split}, -kInf, 1, 8);
  });
}

TEST(Overflow, InTheFirstOfSeveralMicroStepsIsNotForgotten) {
  at_every_stage(
      [](const Setting& setting) {
        TinyTrainer::Options options = options_of(setting, 3);
        options.config.precision = Precision::bf16();
        options.gradient = [](int step, int micro, int rank, int p, std::int64_t i, float w) {
          if (step == 0 && micro == 0 && rank == 1 && p == 5 && i == 7)
            return -std::numeric_limits<float>::infinity();
          return default_gradient(step, micro, rank, p, i, w);
        };
        with_ranks(
            2,
            [&](const ProcessGroup& group) {
              TinyTrainer trainer(group, options);
              const Snapshot before = snapshot_of(trainer.optimizer());
              EXPECT_TRUE(trainer.step().skipped);
              EXPECT_EQ(snapshot_of(trainer.optimizer()), before);
              EXPECT_FALSE(trainer.step().skipped);
            },
            setting.threads);
      },
      3);
}

TEST(LossScale, DividesTheUpdateAndStaysInItsBounds) {
  at_every_stage([](const Setting& setting) {
    TinyTrainer::Options options = options_of(setting);
    options.rule = SGD{.learning_rate = 0.5};
    options.config.loss_scale = {.initial = 4,
                                 .dynamic = true,
                                 .growth = 4,
                                 .backoff = 0.25,
                                 .growth_interval = 1,
                                 .minimum = 2,
                                 .maximum = 8};
    with_ranks(
        2,
        [&](const ProcessGroup& group) {
          double scale = 4;
          bool overflow = false;
          TinyTrainer::Options mine = options;
          mine.gradient = [&](int step, int, int rank, int p, std::int64_t i, float) {
            if (overflow && p == 1) return std::numeric_limits<float>::infinity();
            return static_cast<float>(scale) * item_gradient(step, rank, p, i);
          };
          TinyTrainer trainer(group, mine);
          Oracle oracle = Oracle::of(trainer.optimizer());
          for (int step = 0; step < 6; ++step) {
            overflow = step == 2 || step == 3 || step == 4;
            const StepReport report = trainer.step();
            EXPECT_EQ(report.skipped, overflow);
            // 8 is the maximum, 2 the minimum.
            const std::vector<double> expected = {8, 8, 2, 2, 2, 8};
            EXPECT_EQ(report.loss_scale, expected[static_cast<std::size_t>(step)]);
            scale = report.loss_scale;
            if (overflow) continue;
            oracle.step(0.5, [&](int p, std::int64_t i) {
              return (static_cast<double>(item_gradient(step, 0, p, i)) +
                      item_gradient(step, 1, p, i)) /
                     2;
            });
          }
          EXPECT_EQ(first_difference(values_of(trainer.optimizer()), oracle.weights()), "");
        },
        setting.threads);
  });
}

}  // namespace
}  // namespace ration::test
