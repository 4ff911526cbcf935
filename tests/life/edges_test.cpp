// What was once wrong at the edges: models that are empty, guards kept too long, ranks without a
// batch, exceptions while peers wait.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/deadline.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::HasSubstr;

constexpr ThreadsOptions kModes[] = {{.mode = ThreadsOptions::Mode::direct},
                                     {.mode = ThreadsOptions::Mode::streams}};

TEST(Edges, AModelOfEmptyParametersTrains) {
  for (const ThreadsOptions& mode : kModes) {
    for (const int stage : {0, 1, 2, 3}) {
      with_ranks(
          3,
          [&](const ProcessGroup& group) {
            ShardedOptimizer optimizer(group, {.stage = stage});
            optimizer.add_group(AdamW{});
            const Unit unit = optimizer.add_unit("u", {{.name = "w", .shape = {0, 4}}});
            optimizer.initialize(constant(1));
            const MicroStep micro = optimizer.micro_step();
            { const Gathered whole = unit.gather(); }
            micro.begin_backward();
            (void)unit.gradient<float>(unit["w"]);
            unit.gradients_ready();
            EXPECT_EQ(optimizer.step().gradient_norm, 0.0);
          },
          mode);
    }
  }
}

TEST(Edges, AGuardOverAStepIsRefusedByName) {
  for (const ThreadsOptions& mode : kModes) {
    for (const int stage : {0, 1, 2, 3}) {
      with_ranks(
          2,
          [&](const ProcessGroup& group) {
            TinyTrainer trainer(group, {.config = {.stage = stage}});
            ShardedOptimizer& optimizer = trainer.optimizer();
            optimizer.micro_step();
            Gathered whole = trainer.units()[1].gather();
            EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.step(); }),
                        HasSubstr("guard of unit \"h.0\""));
            EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer.reduce_gradients(); }),
                        HasSubstr("release it first"));
            whole.release();
            optimizer.step();
          },
          mode);
    }
  }
}

TEST(Edges, ARankWithoutABatchMayNotGiveGradients) {
  with_ranks(2, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {});
    const MicroStep micro = trainer.optimizer().micro_step(0, 1, {.has_batch = false});
    micro.begin_backward();
    const Unit& unit = trainer.units()[1];
    EXPECT_THAT(thrown<InvalidArgument>([&] { (void)unit.gradient<float>(unit["h.0.w"]); }),
                HasSubstr("has_batch = false"));
    EXPECT_THAT(thrown<InvalidArgument>([&] { unit.gradients_ready(); }), HasSubstr("\"h.0\""));
    EXPECT_EQ(trainer.optimizer().step().batches, 0);
  });
}

// Rank 0 joins gathers and reduces of units of every kind that rank 1 uses; few buckets, many
// units.
TEST(Edges, ARankWithoutABatchJoinsKeptFrozenAndUnreducedUnits) {
  const WithTimeout timeout(std::chrono::seconds(30));
  for (const ThreadsOptions& mode : kModes) {
    for (const bool overlap : {true, false}) {
      with_ranks(
          2,
          [&](const ProcessGroup& group) {
            ShardedOptimizer optimizer(group, {.stage = 3, .buckets = 1, .overlap = overlap});
            optimizer.add_group(AdamW{});
            std::vector<Unit> units;
            for (int u = 0; u < 24; ++u) {
              const std::string name = "u." + std::to_string(u);
              units.push_back(optimizer.add_unit(
                  name, {{.name = name + ".w", .shape = {65}, .trainable = u % 3 != 1}},
                  {.keep_whole = u % 3 == 2}));
            }
            optimizer.initialize(constant(1));
            for (int step = 0; step < 3; ++step) {
              const bool batch = group.rank() == 1;
              const MicroStep micro = optimizer.micro_step(0, 1, {.has_batch = batch});
              for (int u = 0; batch && u < 24; ++u) {
                const Gathered whole = units[static_cast<std::size_t>(u)].gather();
              }
              if (batch) micro.begin_backward();
              for (int u = 23; batch && u >= 0; --u) {
                const Unit& unit = units[static_cast<std::size_t>(u)];
                const Gathered whole = unit.gather();
                if (u % 3 == 1) continue;
                unit.gradient<float>(unit[unit.name() + ".w"])[0] = 1;
                unit.gradients_ready();
              }
              EXPECT_EQ(optimizer.step().batches, 1);
            }
          },
          mode);
    }
  }
}

TEST(Edges, RanksThatReadDifferentParametersAreToldSo) {
  for (const ThreadsOptions& mode : kModes) {
    EXPECT_THROW(with_ranks(
                     2,
                     [&](const ProcessGroup& group) {
                       ShardedOptimizer optimizer(group, {.stage = 1});
                       optimizer.add_group(AdamW{});
                       const Unit a = optimizer.add_unit("a", {{.name = "a.w", .shape = {64}}});
                       const Unit b = optimizer.add_unit("b", {{.name = "b.w", .shape = {64}}});
                       optimizer.initialize(constant(1));
                       (void)optimizer.read(group.rank() == 0 ? a["a.w"] : b["b.w"], "master");
                     },
                     mode),
                 CommunicationError);
  }
}

// The deadline is long: what ends the job at once is the exception, and its text is what all are
// told.
TEST(Edges, AnExceptionWithWorkInFlightEndsTheJobAtOnce) {
  for (const ThreadsOptions& mode : kModes) {
    const auto start = Clock::now();
    std::string text;
    try {
      with_ranks(
          2,
          [&](const ProcessGroup& group) {
            TinyTrainer trainer(group, {.config = {.stage = 3}});
            if (group.rank() == 0) {
              group.barrier();
              return;
            }
            const Evaluation evaluation = trainer.optimizer().evaluation();
            if (mode.mode == ThreadsOptions::Mode::direct) {
              const Gathered whole = trainer.units()[1].gather();
            }
            throw std::runtime_error("the real cause");
          },
          mode);
    } catch (const std::exception& error) {
      text = error.what();
    }
    EXPECT_THAT(text, HasSubstr("the real cause"));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
  }
}

TEST(Edges, AnOptimizerMovedFromIsAnErrorToUse) {
  with_ranks(1, [](const ProcessGroup& group) {
    ShardedOptimizer first(group, {});
    const ShardedOptimizer second(std::move(first));
    EXPECT_THAT(thrown<InvalidArgument>([&] { first.add_group(AdamW{}); }),
                HasSubstr("moved from"));  // NOLINT(bugprone-use-after-move)
  });
}

}  // namespace
}  // namespace ration::test
