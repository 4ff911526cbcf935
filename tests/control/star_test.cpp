// A job of several stars: groups, and how it ends early or in order.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "control/bytes.hpp"
#include "control/stars.hpp"
#include "support/deadline.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Type and text of what a fold throws.
template <class ErrorType>
std::string thrown_by(Control& control, const std::string& channel, const std::string& what) {
  try {
    Bytes result;
    control.fold(channel, {}, concatenate, result, what);
  } catch (const ErrorType& e) {
    EXPECT_EQ(typeid(e), typeid(ErrorType)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "did not throw";
  return {};
}

TEST(Star, OfOneNeedsNobody) {
  const auto star = Star::meet({}, std::make_shared<Alarm>(1));
  const auto control = star->control(0, {0}, 0);
  EXPECT_EQ(fold(*control, "step", "x"), "x");
}

TEST(Star, GroupsNeedNoRankZeroAndAreCombinedByTheirLeader) {
  const Stars stars(4);
  const std::uint64_t pair = stars.of(2).new_group();
  const std::uint64_t three = stars.of(3).new_group();
  EXPECT_NE(pair, three);
  const std::vector<int> pair_names{2, 1};
  const std::vector<int> three_names{3, 0, 1};
  std::atomic<int> combined{0};
  run_ranks(4, [&](int rank) {
    const auto folds = [&](std::uint64_t group, const std::vector<int>& names) {
      const auto self = std::find(names.begin(), names.end(), rank);
      if (self == names.end()) return;
      const auto control =
          stars.of(rank).control(group, names, static_cast<int>(self - names.begin()));
      std::string expected;
      for (const int name : names) expected += std::to_string(name);
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(fold(*control, "step", std::to_string(rank),
                       [&](std::span<const Bytes> records, Bytes& result) {
                         EXPECT_EQ(rank, names.front());
                         ++combined;
                         concatenate(records, result);
                       }),
                  expected);
      }
    };
    folds(pair, pair_names);
    folds(0, {0, 1, 2, 3});
    folds(three, three_names);
  });
  EXPECT_EQ(combined, 150);
}

TEST(Star, WhatAGroupsLeaderThrowsAllItsMembersThrow) {
  const Stars stars(4);
  const auto controls = stars.controls(7, {3, 1, 2});
  run_ranks(3, [&](int rank) {
    try {
      fold(*controls[static_cast<std::size_t>(rank)], "step", "x",
           [](std::span<const Bytes>, Bytes&) { throw InvalidArgument("rank 1: no"); });
      ADD_FAILURE();
    } catch (const InvalidArgument& e) {
      EXPECT_STREQ(e.what(), "rank 1: no");
    }
    EXPECT_EQ(fold(*controls[static_cast<std::size_t>(rank)], "step", "y"), "yyy");
  });
}

TEST(Star, CarriesNothingAndMuch) {
  const Stars stars(3);
  const auto controls = stars.controls(0, whole(3));
  const std::size_t much = std::size_t{5} << 20;
  run_ranks(3, [&](int rank) {
    Control& control = *controls[static_cast<std::size_t>(rank)];
    EXPECT_EQ(fold(control, "step", ""), "");
    const auto letter = static_cast<char>('a' + rank);
    const std::string result = fold(control, "step", std::string(much, letter));
    ASSERT_EQ(result.size(), 3 * much);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(result.substr(r * much, much), std::string(much, static_cast<char>('a' + r)));
    }
  });
  EXPECT_GT(stars.of(1).sent_bytes(), much);
  EXPECT_LT(stars.of(1).sent_bytes(), much + 4096);
}

TEST(Star, KeepsNothingOfAThousandGroups) {
  const Stars stars(3);
  const auto world = stars.controls(0, whole(3));
  run_ranks(3, [&](int rank) {
    for (std::uint64_t group = 1; group <= 1000; ++group) {
      const auto control = stars.of(rank).control(group, {1, 2, 0}, (rank + 2) % 3);
      if (group % 10 == 0) {
        EXPECT_EQ(fold(*control, "step", "x"), "xxx");
      }
    }
    // What a rank has said of its groups is there before its record.
    EXPECT_EQ(fold(*world[static_cast<std::size_t>(rank)], "step", "x"), "xxx");
    if (rank == 0) {
      EXPECT_EQ(stars.of(0).groups(), 1U);
    }
  });
}

TEST(Star, ATimeoutOfAGroupEndsTheJobOnAllRanksWithOneText) {
  const Stars stars(5);
  const auto world = stars.controls(0, whole(5));
  const auto group = stars.controls(9, {4, 1, 3});
  const WithTimeout timeout(300ms);
  const std::string text = "rank 1: a save (save #0): timed out after 0.3 s waiting for ranks 4, 3";
  run_ranks(5, [&](int rank) {
    if (rank == 1) {
      EXPECT_EQ(thrown_by<Timeout>(*group[1], "save", "a save"), text);
    } else {
      EXPECT_TRUE(eventually([&] { return stars.alarm(rank).raised(); }));
      EXPECT_THROW(stars.alarm(rank).check_waiting(), Timeout);
    }
  });
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(thrown_by<RemoteError>(*world[static_cast<std::size_t>(rank)], "step", "x"), text);
  }
}

TEST(Star, AnAlarmRaisedOnOneRankIsRaisedOnAll) {
  for (const int raiser : {0, 2}) {
    const Stars stars(4);
    const auto controls = stars.controls(0, whole(4));
    run_ranks(4, [&](int rank) {
      if (rank == raiser) {
        stars.alarm(rank).raise({Failure::Kind::out_of_memory, "rank 2: no memory"});
        stars.alarm(rank).raise({Failure::Kind::error, "rank 2: unwound"});
      } else {
        EXPECT_TRUE(eventually([&] { return stars.alarm(rank).raised(); }));
        EXPECT_THROW(stars.alarm(rank).check_waiting(), OutOfMemory);
        Control& control = *controls[static_cast<std::size_t>(rank)];
        EXPECT_EQ(thrown_by<RemoteError>(control, "step", "x"), "rank 2: no memory");
      }
      EXPECT_EQ(stars.alarm(rank).reason(), "rank 2: no memory");
    });
  }
}

TEST(Star, AnAbortIsThereAtOnce) {
  const Stars stars(4);
  const auto controls = stars.controls(0, whole(4));
  const auto start = Clock::now();
  run_ranks(4, [&](int rank) {
    Control& control = *controls[static_cast<std::size_t>(rank)];
    if (rank == 2) return control.abort("rank 2: enough");
    EXPECT_EQ(thrown_by<RemoteError>(control, "step", "x"), "rank 2: enough");
  });
  EXPECT_LT(Clock::now() - start, 1s);  // milliseconds, but for a busy machine
}

TEST(Star, WhoWaitsForARankThatHasDepartedIsTold) {
  for (const int leaver : {0, 1, 2}) {
    const Stars stars(3);
    const auto controls = stars.controls(0, whole(3));
    stars.of(leaver).depart();
    const int waiter = (leaver + 1) % 3;
    EXPECT_EQ(
        thrown_by<CommunicationError>(*controls[static_cast<std::size_t>(waiter)], "step",
                                      "a step"),
        fmt::format("rank {}: a step (step #0): rank {} has ended without it; every rank must "
                    "make the same calls",
                    waiter, leaver));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(eventually([&] { return stars.alarm(rank).departed(leaver); }));
    }
  }
}

TEST(Star, WhoHasWaitedForARankThatDepartsIsTold) {
  const Stars stars(4);
  const auto controls = stars.controls(5, {1, 3, 2});
  std::thread waiter([&] {
    EXPECT_THAT(thrown_by<CommunicationError>(*controls[1], "step", "a step"),
                HasSubstr("rank 1 has ended without it"));
  });
  stars.of(1).depart();
  waiter.join();
}

TEST(Star, ADepartedRankHarmsNobodyWhoDoesNotWaitForIt) {
  Stars stars(4);
  const auto controls = stars.controls(5, {1, 0, 2});
  stars.of(3).depart();
  stars.stars[3].reset();
  run_ranks(3, [&](int rank) {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(fold(*controls[static_cast<std::size_t>(rank)], "step", "x"), "xxx");
    }
  });
}

TEST(Star, EndsInAnyOrder) {
  std::vector<int> order = whole(4);
  do {
    Stars stars(4);
    auto controls = stars.controls(0, whole(4));
    run_ranks(4, [&](int rank) {
      EXPECT_EQ(fold(*controls[static_cast<std::size_t>(rank)], "step", "x"), "xxxx");
    });
    controls.clear();
    std::thread zero;  // it waits for the others, wherever in the order it is
    for (const int rank : order) {
      auto star = std::exchange(stars.stars[static_cast<std::size_t>(rank)], nullptr);
      if (rank == 0) zero = std::thread([star = std::move(star)]() mutable { star.reset(); });
    }
    zero.join();
    for (const auto& alarm : stars.alarms) EXPECT_EQ(alarm->reason(), std::nullopt);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Star, OnRankZeroStaysUntilTheOthersHaveDeparted) {
  Stars stars(3);
  std::atomic<bool> departed{false};
  std::thread zero([&, star = std::exchange(stars.stars[0], nullptr)]() mutable {
    star.reset();
    EXPECT_TRUE(departed.load());
  });
  {
    const auto pair = stars.controls(3, {2, 1});
    std::thread other([&] { EXPECT_EQ(fold(*pair[1], "step", "b"), "ab"); });
    EXPECT_EQ(fold(*pair[0], "step", "a"), "ab");
    other.join();
  }
  stars.of(1).depart();
  departed.store(true);
  stars.of(2).depart();
  zero.join();
}

TEST(Star, AfterAFailureItEndsWithinItsTimeWhoeverStays) {
  Stars stars(3);
  stars.alarm(1).raise({Failure::Kind::error, "rank 1: no"});
  const auto start = Clock::now();
  stars.stars[0].reset();  // the others are still there
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_TRUE(eventually([&] { return stars.alarm(2).raised(); }));
  EXPECT_EQ(stars.alarm(2).reason(), "rank 1: no");
}

TEST(Star, HoldsSixtyFourRanks) {
  const Stars stars(64);
  const auto controls = stars.controls(0, whole(64));
  run_ranks(64, [&](int rank) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(fold(*controls[static_cast<std::size_t>(rank)], "step", "x").size(), 64U);
    }
  });
}

}  // namespace
}  // namespace ration
