// A rank throws: the others are told at once, by name, and the process ends non-zero.

#include <chrono>
#include <mutex>
#include <thread>
#include <typeinfo>

#include "launched.hpp"
#include "support/training.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Deadlines of 600 s: whoever waits for one fails here.
constexpr auto kAtOnce = std::chrono::seconds(20);

struct Caught {
  std::string type;
  std::string text;
};

/// Runs `body` on 4 ranks by launch; what each rank's body threw.
std::vector<Caught> caught_by_ranks(const std::function<void(World&)>& body, Launched& result) {
  std::vector<Caught> caught(4);
  const auto start = std::chrono::steady_clock::now();
  result = launched(
      {},
      [&](World& world) {
        try {
          body(world);
        } catch (const std::exception& error) {
          caught[static_cast<std::size_t>(world.rank())] = {typeid(error).name(), error.what()};
          throw;
        }
      },
      {.ranks = 4});
  EXPECT_LT(std::chrono::steady_clock::now() - start, kAtOnce);
  return caught;
}

class Failure : public testing::TestWithParam<std::tuple<int, const char*>> {};  // stage, mode

TEST_P(Failure, InTheMiddleOfBackwardIsARemoteErrorOfThatRankOnTheOthers) {
  const auto [stage, mode] = GetParam();
  const Environment threads("RATION_THREADS", mode);
  const Environment none("RATION_RANKS", nullptr);
  Launched result;
  const auto caught = caught_by_ranks(
      [&, stage = stage](World& world) {
        TinyTrainer trainer(world, {.config = {.stage = stage}});
        trainer.step();
        if (world.rank() == 2) {
          const MicroStep micro = trainer.optimizer().micro_step();
          micro.begin_backward();
          trainer.backward(trainer.units()[4], 0);
          const Gathered weights = trainer.units()[3].gather();
          throw std::runtime_error("out of\nluck");
        }
        for (int i = 0; i < 3; ++i) trainer.step();
        ADD_FAILURE() << "rank " << world.rank() << " went on without rank 2";
      },
      result);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.printed, "ration: rank 2: out of luck\n") << "one line, once";
  for (std::size_t rank = 0; rank < 4; ++rank) {
    if (rank == 2) continue;
    EXPECT_EQ(caught[rank].type, typeid(RemoteError).name()) << caught[rank].text;
    EXPECT_THAT(caught[rank].text, HasSubstr("rank 2: out of luck"));
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Failure,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values("direct", "streams")));

TEST(Launch, AFailureBeforeTheOthersWaitIsToldToo) {
  const Environment none("RATION_RANKS", nullptr);
  Launched result;
  const auto caught = caught_by_ranks(
      [](World& world) {
        if (world.rank() == 3) throw InvalidArgument("rank 3: no such file");
        // Never meets rank 3, but comes to a call sooner or later.
        for (;;) {
          (void)world.split(0);
        }
      },
      result);
  EXPECT_EQ(result.printed, "ration: rank 3: no such file\n") << "the rank is named once";
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(caught[rank].type, typeid(RemoteError).name());
    EXPECT_THAT(caught[rank].text, HasSubstr("no such file"));
  }
}

TEST(Launch, WhatIsNoExceptionIsAFailureToo) {
  const Launched result = launched({}, [](World&) { throw 42; });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.printed, HasSubstr("rank 0: an exception that is no std::exception"));
}

TEST(Launch, SeveralFailuresAreOneLine) {
  const Launched result =
      launched({}, [](World&) { throw std::runtime_error("all fail"); }, {.ranks = 4});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.printed, testing::MatchesRegex("ration: rank [0-3]: all fail\n"));
}

TEST(Launch, AFailureLeavesTheNextLaunchAlone) {
  launched({}, [](World&) { throw std::runtime_error("once"); }, {.ranks = 3});
  std::uint64_t digest = 0;
  const Launched result = launched({},
                                   [&](World& world) {
                                     TinyTrainer trainer(world, {.config = {.stage = 3}});
                                     trainer.step();
                                     const std::uint64_t mine = trainer.optimizer().digest();
                                     if (world.rank() == 0) digest = mine;
                                   },
                                   {.ranks = 3});
  EXPECT_EQ(result.status, 0) << result.printed;
  EXPECT_EQ(digest, train(3, 1, {.config = {.stage = 0}}));
}

TEST(Launch, OptionsThatDifferAreThrownByAllRanksAndPrintedOnce) {
  const Environment none("RATION_RANKS", nullptr);
  Launched result;
  const auto caught = caught_by_ranks(
      [](World& world) {
        TinyTrainer trainer(world, {.config = {.stage = world.rank() == 1 ? 2 : 3}});
      },
      result);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.printed,
              AllOf(HasSubstr("rank 1"), HasSubstr("stage 2"), HasSubstr("stage 3")));
  for (const Caught& c : caught) EXPECT_THAT(c.text, HasSubstr("stage 2"));
}

}  // namespace
}  // namespace ration::test
