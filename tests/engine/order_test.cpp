// Ranks whose graphs differ: units skipped, announced in another order, asked for too late or too
// many at once.

#include <ranges>

#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

constexpr int kRanks = 3;

/// The units a rank uses in a step, in the order of its forward; the backward is the reverse.
using Graph = std::function<std::vector<int>(int step, int rank)>;

void train_step(TinyTrainer& trainer, const std::vector<int>& units, int micro_steps) {
  for (int m = 0; m < micro_steps; ++m) {
    const MicroStep micro = trainer.optimizer().micro_step(m, micro_steps);
    for (const int u : units) {
      const Gathered weights = trainer.units()[static_cast<std::size_t>(u)].gather();
    }
    micro.begin_backward();
    for (const int u : std::views::reverse(units))
      trainer.backward(trainer.units()[static_cast<std::size_t>(u)], m);
  }
  trainer.count_step();
  EXPECT_FALSE(trainer.optimizer().step().skipped);
}

// The gradients depend on the weights, so a wrong gather shows.
std::uint64_t train_graph(const Setting& setting, const Graph& graph, int buckets,
                          int micro_steps) {
  TinyTrainer::Options options = options_of(setting, micro_steps);
  options.config.buckets = buckets;
  options.config.prefetch = buckets > 3 ? 3 : 1;
  PerRank<std::uint64_t> digests(kRanks);
  with_ranks(
      kRanks,
      [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options);
        for (int step = 0; step < 5; ++step)
          train_step(trainer, graph(step, group.rank()), micro_steps);
        digests[group] = trainer.optimizer().digest();
      },
      setting.threads);
  EXPECT_TRUE(digests.alike());
  return digests.first();
}

void expect_same_bits(const Graph& graph, const std::vector<int>& buckets) {
  for (const int micro_steps : {1, 2}) {
    std::map<Accumulation, std::uint64_t> expected;
    at_every_stage(
        [&](const Setting& setting) {
          for (const int b : buckets) {
            const std::uint64_t digest = train_graph(setting, graph, b, micro_steps);
            const auto [found, is_new] = expected.emplace(setting.accumulation, digest);
            EXPECT_EQ(digest, found->second) << b << " buckets, " << micro_steps << " micro-steps";
          }
        },
        micro_steps);
  }
}

TEST(Graphs, UnitsSkippedByRankZero) {
  expect_same_bits(
      [](int step, int rank) {
        return rank == 0 && step % 2 == 1 ? std::vector{0, 2, 3, 4} : std::vector{0, 1, 2, 3, 4};
      },
      {2, 3});
  expect_same_bits(
      [](int step, int rank) {
        return rank == 0 && step % 2 == 0 ? std::vector{0, 1, 3} : std::vector{0, 1, 2, 3, 4};
      },
      {4});
}

TEST(Graphs, TwoUnitsAnnouncedInEitherOrder) {
  expect_same_bits(
      [](int step, int rank) {
        return (rank + step) % 3 == 0 ? std::vector{0, 1, 3, 2, 4} : std::vector{0, 1, 2, 3, 4};
      },
      {2, 3});
}

TEST(Graphs, AUnitSkippedByAllInSomeSteps) {
  expect_same_bits(
      [](int step, int) {
        return step % 2 == 1 ? std::vector{0, 2, 3, 4} : std::vector{0, 1, 2, 3, 4};
      },
      {2, 3});
}

TEST(Graphs, OrdersThatChangeBetweenSteps) {
  expect_same_bits(
      [](int step, int) {
        return step < 2 ? std::vector{0, 1, 2, 3, 4} : std::vector{0, 2, 1, 4, 3};
      },
      {2, 3});
  expect_same_bits(
      [](int step, int) {
        return step % 2 == 0 ? std::vector{4, 3, 2, 1, 0} : std::vector{2, 4, 0, 1, 3};
      },
      {5});
}

// Each step's order can do with two buckets after the former one's, none but the first after the
// order of registration.
TEST(Graphs, RankZerosOrderHoldsFromTheNextStepOn) {
  expect_same_bits(
      [](int step, int rank) {
        if (step == 0) return std::vector{0, 1, 3, 2, 4};
        return step > 2 && rank == 1 ? std::vector{0, 3, 1, 2, 4} : std::vector{0, 3, 1, 4, 2};
      },
      {2});
}

TEST(Graphs, TooFewBucketsAreAnErrorOnAllRanksThatAdvises) {
  for (const int stage : {2, 3}) {
    for (const ThreadsOptions& threads : {kDirect, kStreams}) {
      SCOPED_TRACE(stage);
      // On rank 0 each unit waits for one it reaches last, or never.
      for (const int prefetch : {0, 3}) {
        // Without prefetch it must be said before rank 0 gathers a third unit: the others come to
        // that gather only when they have a bucket, and for one of theirs rank 0 is missing.
        const auto units = prefetch == 0 ? std::vector{0, 1, 2, 3} : std::vector{4, 3, 2, 1, 0};
        const auto results = outcomes(
            kRanks,
            [&](const ProcessGroup& group) {
              TinyTrainer::Options options = options_of({stage, threads});
              options.config.prefetch = prefetch;
              TinyTrainer trainer(group, options);
              train_step(trainer, {0, 1, 2, 3, 4}, 1);
              train_step(trainer, group.rank() == 0 ? units : std::vector{0, 1, 2, 3, 4}, 1);
            },
            threads);
        EXPECT_EQ(results[0].kind, Outcome::Kind::argument) << results[0].text;
        for (const Outcome& result : results) {
          EXPECT_NE(result.kind, Outcome::Kind::fine);
          for (const char* part :
               {"rank 0: unit", "every gradient bucket is held", "raise Config::buckets (now 2)"}) {
            EXPECT_NE(result.text.find(part), std::string::npos) << result.text;
          }
        }
      }
    }
  }
}

// Where gathers are matched, each has its turn: what came and went is not to be had again.
TEST(Gathers, AskedForTooLateAreAnErrorThatAdvises) {
  const auto results = outcomes(
      2,
      [](const ProcessGroup& group) {
        TinyTrainer trainer(group, options_of({.stage = 3, .threads = kStreams}));
        train_step(trainer,
                   group.rank() == 1 ? std::vector{0, 4, 3, 2, 1} : std::vector{0, 1, 2, 3, 4}, 1);
      },
      kStreams);
  for (const Outcome& result : results) {
    EXPECT_NE(result.kind, Outcome::Kind::fine);
    for (const char* part : {"rank 1: unit", "after its turn", "raise Config::prefetch (now 1)"})
      EXPECT_NE(result.text.find(part), std::string::npos) << result.text;
  }
}

TEST(Gathers, MoreGuardsThanSlotsAreRefusedByNameAndOneReleasedLetsItGoOn) {
  for (const ThreadsOptions& threads : {kDirect, kStreams}) {
    with_ranks(
        2,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options_of({.stage = 3, .threads = threads}));
          const std::vector<Unit>& units = trainer.units();
          {
            trainer.optimizer().micro_step();
            Gathered first = units[1].gather();
            const Gathered second = units[2].gather();
            const Gathered whole = units[0].gather();  // keep_whole: needs no slot
            const std::string error = error_of([&] { (void)units[3].gather(); });
            for (const char* part : {"\"h.2\"", "\"h.0\"", "\"h.1\"", "Config::prefetch (now 1)"})
              EXPECT_NE(error.find(part), std::string::npos) << error;
            first.release();
            const Gathered third = units[3].gather();
            EXPECT_NE(error_of([&] { (void)units[3].gather(); }).find("guard"), std::string::npos);
          }
          EXPECT_NE(error_of([&] { (void)units[2].gather(); }).find("twice in one pass"),
                    std::string::npos);
          trainer.optimizer().step();
          EXPECT_FALSE(trainer.step().skipped);
        },
        threads);
  }
}

TEST(Gathers, AnEvaluationMaySkipUnits) {
  at_every_stage([](const Setting& setting) {
    const std::uint64_t expected = train(kRanks, 2, options_of(setting), setting.threads);
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options_of(setting));
          trainer.step();
          const std::uint64_t before = trainer.optimizer().digest();
          for (int i = 0; i < 2; ++i) {
            const Evaluation evaluation = trainer.optimizer().evaluation();
            for (int u = group.rank(); u < (group.rank() == 1 ? 2 : 5); ++u)
              const Gathered weights = trainer.units()[static_cast<std::size_t>(u)].gather();
          }
          EXPECT_EQ(trainer.optimizer().digest(), before);
          {
            const Evaluation evaluation = trainer.optimizer().evaluation();
            if (group.rank() == 2) const Gathered weights = trainer.units()[2].gather();
          }
          (void)trainer.optimizer().read(trainer.optimizer().parameter("h.2.w"), "parameter");
          {
            const Evaluation evaluation = trainer.optimizer().evaluation();
            if (group.rank() == 1) const Gathered weights = trainer.units()[3].gather();
          }
          trainer.step();
          EXPECT_EQ(trainer.optimizer().digest(), expected);
        },
        setting.threads);
  });
}

}  // namespace
}  // namespace ration::test
