// Ranks whose batches differ: weights, no batch at all, one batch too many.

#include "core/timeout.hpp"
#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

// Rank 0 has item 0 of a batch of 10, rank 1 the other nine; each gives the sum over its own.
TEST(Weights, OfOneAndNineItemsAreOneProcessWithTen) {
  at_every_stage(
      [](const Setting& setting) {
        for (const int micro_steps : {1, 3}) {
          TinyTrainer::Options options = options_of(setting, micro_steps);
          options.rule = SGD{.learning_rate = 0.5};
          // In micro-step m the ranks have 1 + m and 9 - m items.
          options.gradient = [](int, int micro, int rank, int p, std::int64_t i, float) {
            float sum = 0;
            for (int item = 0; item < 10; ++item) {
              if ((item > micro) == (rank == 1)) sum += item_gradient(micro, item, p, i);
            }
            return sum;
          };
          with_ranks(
              2,
              [&](const ProcessGroup& group) {
                TinyTrainer trainer(group, options);
                Oracle oracle = Oracle::of(trainer.optimizer());
                for (int m = 0; m < micro_steps; ++m) {
                  trainer.optimizer()
                      .micro_step(m, micro_steps, {.weight = group.rank() ? 9.0 - m : 1.0 + m})
                      .begin_backward();
                  for (auto unit = trainer.units().rbegin(); unit != trainer.units().rend(); ++unit)
                    trainer.backward(*unit, m);
                }
                const StepReport report = trainer.optimizer().step();
                EXPECT_EQ(report.total_weight, 10 * micro_steps);
                EXPECT_EQ(report.batches, 2 * micro_steps);
                const double norm = oracle.step(0.5, [&](int p, std::int64_t i) {
                  double sum = 0;
                  for (int m = 0; m < micro_steps; ++m) {
                    for (int item = 0; item < 10; ++item) sum += item_gradient(m, item, p, i);
                  }
                  return sum / (10 * micro_steps);
                });
                EXPECT_NEAR(report.gradient_norm, norm, 1e-6 * norm);
                EXPECT_EQ(first_difference(values_of(trainer.optimizer()), oracle.weights()), "");
              },
              setting.threads);
        }
      },
      3);
}

// A step in which `has_batch` says who takes part in which micro-step; the others only open theirs.
StepReport step_with(TinyTrainer& trainer, int micro_steps,
                     const std::function<bool(int micro)>& has_batch) {
  for (int m = 0; m < micro_steps; ++m) {
    const bool has = has_batch(m);
    const MicroStep micro = trainer.optimizer().micro_step(m, micro_steps, {.has_batch = has});
    if (!has) continue;
    for (const Unit& unit : trainer.units()) const Gathered weights = unit.gather();
    micro.begin_backward();
    for (auto unit = trainer.units().rbegin(); unit != trainer.units().rend(); ++unit)
      trainer.backward(*unit, m);
  }
  trainer.count_step();
  return trainer.optimizer().step();
}

TEST(NoBatch, OnSomeRanksIsTheMeanOverTheOthers) {
  constexpr int kRanks = 3;
  const auto has_batch = [](int step, int micro, int rank) {
    return step == 0 || (step == 1 ? rank != 0 : rank == micro);
  };
  at_every_stage(
      [&](const Setting& setting) {
        for (const int repetition : {0, 1, 2, 3}) {
          const int micro_steps = 1 + repetition % 2;
          const bool overlap = repetition < 2;
          TinyTrainer::Options options = options_of(setting, micro_steps);
          options.config.overlap = overlap;
          options.rule = SGD{.learning_rate = 0.5};
          options.gradient = [](int step, int micro, int rank, int p, std::int64_t i, float) {
            return item_gradient(step, micro * kRanks + rank, p, i);
          };
          PerRank<Values> values(kRanks);
          with_ranks(
              kRanks,
              [&](const ProcessGroup& group) {
                TinyTrainer trainer(group, options);
                Oracle oracle = Oracle::of(trainer.optimizer());
                for (int step = 0; step < 3; ++step) {
                  const StepReport report = step_with(trainer, micro_steps, [&](int micro) {
                    return has_batch(step, micro, group.rank());
                  });
                  int batches = 0;
                  for (int k = 0; k < micro_steps * kRanks; ++k)
                    batches += has_batch(step, k / kRanks, k % kRanks);
                  EXPECT_EQ(report.batches, batches);
                  EXPECT_FALSE(report.skipped);
                  oracle.step(0.5, [&](int p, std::int64_t i) {
                    double sum = 0;
                    for (int k = 0; k < micro_steps * kRanks; ++k) {
                      if (has_batch(step, k / kRanks, k % kRanks))
                        sum += item_gradient(step, k, p, i);
                    }
                    return sum / batches;
                  });
                }
                values[group] = values_of(trainer.optimizer());
                EXPECT_EQ(first_difference(values[group], oracle.weights()), "");
              },
              setting.threads);
          EXPECT_TRUE(values.alike());
        }
      },
      2);
}

TEST(NoBatch, OnAnyRankIsTheEndForAllAndChangesNothing) {
  at_every_stage([](const Setting& setting) {
    with_ranks(
        3,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options_of(setting));
          trainer.step();
          const Snapshot before = snapshot_of(trainer.optimizer());
          // Rank r has 2 + r batches.
          int steps = 0;
          for (;;) {
            const StepReport report =
                step_with(trainer, 1, [&](int) { return steps < 2 + group.rank(); });
            EXPECT_EQ(report.skipped, report.batches == 0);
            if (report.batches == 0) break;
            ++steps;
          }
          EXPECT_EQ(steps, 4);
          const Snapshot end = snapshot_of(trainer.optimizer());
          EXPECT_NE(end, before);
          EXPECT_TRUE(step_with(trainer, 1, [](int) { return false; }).skipped);
          EXPECT_EQ(snapshot_of(trainer.optimizer()), end);
        },
        setting.threads);
  });
}

TEST(NoBatch, OfWeightZeroOrNoneAtAllIsSkippedAndBadWeightsAreRefused) {
  with_ranks(2, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {});
    ShardedOptimizer& optimizer = trainer.optimizer();
    for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
      EXPECT_NE(error_of([&] { optimizer.micro_step(0, 1, {.weight = bad}); }).find("weight"),
                std::string::npos)
          << bad;
    }
    optimizer.micro_step(0, 1, {.weight = 0});
    const StepReport report = optimizer.step();
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.batches, 2);
  });
}

class ShortDeadline {
 public:
  ShortDeadline() : before_(operation_timeout()) {
    set_operation_timeout(std::chrono::milliseconds(500));
  }
  ~ShortDeadline() { set_operation_timeout(before_); }

 private:
  std::chrono::milliseconds before_;
};

TEST(OneBatchTooMany, IsAnErrorThatNamesTheMissingRankAndTheCallWithinTheDeadline) {
  const ShortDeadline deadline;
  for (const int stage : {0, 3}) {
    for (const ThreadsOptions& threads : {kDirect, kStreams}) {
      SCOPED_TRACE(stage);
      const auto start = std::chrono::steady_clock::now();
      const auto results = outcomes(
          2,
          [&](const ProcessGroup& group) {
            TinyTrainer trainer(group, options_of({stage, threads}));
            for (int i = 0; i < 10 + group.rank(); ++i) trainer.step();
          },
          threads);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
      EXPECT_EQ(results[0].kind, Outcome::Kind::fine) << results[0].text;
      EXPECT_EQ(results[1].kind, Outcome::Kind::timeout) << results[1].text;
      EXPECT_NE(results[1].text.find("waiting for rank 0"), std::string::npos) << results[1].text;
      const bool names_the_call = results[1].text.find("reduce_scatter") != std::string::npos ||
                                  results[1].text.find("all_gather") != std::string::npos;
      EXPECT_TRUE(names_the_call) << results[1].text;
    }
  }
}

TEST(OneBatchTooMany, AgainstAnotherCallNamesBoth) {
  const ShortDeadline deadline;
  for (const Outcome& result : outcomes(2, [](const ProcessGroup& group) {
         TinyTrainer trainer(group, options_of({.stage = 1}));
         trainer.step();
         step_with(trainer, 1, [](int) { return true; });
         trainer.optimizer().micro_step(0, 1, {.has_batch = false});
         if (group.rank() == 0) {
           (void)trainer.optimizer().reduce_gradients();
         } else {
           trainer.optimizer().step();
         }
       })) {
    EXPECT_EQ(result.kind, Outcome::Kind::communication) << result.text;
    EXPECT_NE(result.text.find("rank 1: calls step"), std::string::npos) << result.text;
    EXPECT_NE(result.text.find("rank 0 calls reduce_gradients"), std::string::npos) << result.text;
  }
}

}  // namespace
}  // namespace ration::test
