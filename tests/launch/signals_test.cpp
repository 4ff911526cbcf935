// Wishes to stop: by a signal, by a call; agreed in the step's report.

#include <csignal>

#include "engine/engine.hpp"
#include "launched.hpp"
#include "support/training.hpp"

namespace ration::test {
namespace {

/// Trains until told to stop; the step of each rank at which its report said so. `wish` is called
/// on every rank before each step.
std::vector<int> stopped_at(const std::function<void(World&, int step)>& wish) {
  std::vector<int> steps(4, -1);
  const Launched result =
      launched({},
               [&](World& world) {
                 EXPECT_FALSE(world.stop_requested());
                 ShardedOptimizer optimizer(world, {.stage = 3});
                 optimizer.add_group(SGD{});
                 const Unit unit = optimizer.add_unit("u", {{.name = "w", .shape = {300}}});
                 optimizer.initialize(constant(1));
                 for (int step = 1; step <= 8; ++step) {
                   wish(world, step);
                   const MicroStep micro = optimizer.micro_step();
                   micro.begin_backward();
                   std::fill_n(unit.gradient<float>(unit["w"]), 300, 1.0f);
                   unit.gradients_ready();
                   if (!optimizer.step().stop_requested) continue;
                   steps[static_cast<std::size_t>(world.rank())] = step;
                   EXPECT_EQ(optimizer.step_count(unit["w"]), step) << "the step itself is done";
                   return;
                 }
               },
               {.ranks = 4});
  EXPECT_EQ(result.status, 0) << result.printed;
  return steps;
}

class Signals : public testing::TestWithParam<int> {};

TEST_P(Signals, StopAllRanksInTheSameStep) {
  const auto steps = stopped_at([](World& world, int step) {
    if (world.rank() == 1 && step == 3) raise(GetParam());
  });
  EXPECT_NE(steps[0], -1);
  EXPECT_LE(steps[0], 3);
  EXPECT_THAT(steps, testing::Each(steps[0]));
}

TEST_P(Signals, AreForgottenByTheNextLaunch) {
  stopped_at([](World& world, int step) {
    if (world.rank() == 1 && step == 3) raise(GetParam());
  });
  EXPECT_THAT(stopped_at([](World&, int) {}), testing::Each(-1));
}

INSTANTIATE_TEST_SUITE_P(Both, Signals, testing::Values(SIGINT, SIGTERM));

TEST(RequestStop, OnOneRankStopsAllInTheSameStep) {
  const auto steps = stopped_at([](World& world, int step) {
    if (world.rank() == 2 && step == 4) {
      world.request_stop();
      EXPECT_TRUE(world.stop_requested());
    }
  });
  EXPECT_NE(steps[0], -1);
  EXPECT_LE(steps[0], 4);
  EXPECT_THAT(steps, testing::Each(steps[0]));
}

// Ranks of one process share the wish; those of several do not.
TEST(RequestStop, KnownToOneRankOnlyIsInEveryRanksReport) {
  with_ranks(3, [](const ProcessGroup& group) {
    bool wished = false;
    detail::Engine engine(group, {.stage = 1}, [&] { return wished; });
    engine.add_group(SGD{});
    engine.add_unit("u", {{.name = "w", .shape = {300}}}, {});
    engine.initialize(constant(1));
    for (const bool wish : {false, true}) {
      wished = wish && group.rank() == 1;
      engine.micro_step(0, 1, {});
      EXPECT_EQ(engine.step({}).stop_requested, wish);
    }
  });
}

// Of an optimizer over a group: the whole's wishes are not its business.
TEST(RequestStop, IsOfTheWorld) {
  const Launched result =
      launched({},
               [](World& world) {
                 TinyTrainer trainer(static_cast<const ProcessGroup&>(world), {});
                 world.request_stop();
                 EXPECT_FALSE(trainer.step().stop_requested);
               },
               {.ranks = 2});
  EXPECT_EQ(result.status, 0) << result.printed;
}

volatile std::sig_atomic_t seen = 0;

void on_signal(int) {
  seen = seen + 1;
}

TEST(Launch, PutsFormerHandlersBack) {
  struct sigaction mine = {};
  mine.sa_handler = on_signal;
  struct sigaction former = {};
  sigaction(SIGTERM, &mine, &former);
  launched({}, [](World& world) {
    raise(SIGTERM);
    EXPECT_TRUE(world.stop_requested());
  });
  EXPECT_EQ(seen, 0);
  raise(SIGTERM);
  EXPECT_EQ(seen, 1);
  launched({},
           [](World& world) {
             raise(SIGTERM);
             EXPECT_FALSE(world.stop_requested());
           },
           {.handle_signals = false});
  EXPECT_EQ(seen, 2) << "asked to leave signals alone";
  sigaction(SIGTERM, &former, nullptr);
}

class SecondSignal : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void launch_and_raise(std::initializer_list<int> signals) {
  launch(0, nullptr,
         [&](World& world) {
           world.barrier();
           if (world.rank() == 1) {
             for (const int signal : signals) raise(signal);
           }
           world.barrier();
         },
         {.ranks = 3});
  std::exit(0);
}

TEST_F(SecondSignal, EndsTheProcessAtOnce) {
  EXPECT_EXIT(launch_and_raise({SIGTERM}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(launch_and_raise({SIGTERM, SIGTERM}), testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(launch_and_raise({SIGTERM, SIGINT}), testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace ration::test
