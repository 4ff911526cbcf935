// Control among threads and among processes: folds, their order, and how they end early.

#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "control/bytes.hpp"
#include "control/in_process/in_process.hpp"
#include "control/stars.hpp"
#include "device/host/host_stream.hpp"
#include "support/deadline.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;
using Controls = std::vector<std::unique_ptr<Control>>;

Control& of(const Controls& controls, int rank) {
  return *controls[static_cast<std::size_t>(rank)];
}

// The controls of all ranks, however they are connected.
class Folds : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  static int ranks() { return std::get<1>(GetParam()); }
  Controls controls() {
    if (std::get<0>(GetParam()) == "in_process") return make_in_process_controls(ranks());
    stars_ = std::make_unique<Stars>(ranks());
    return stars_->controls(0, whole(ranks()));
  }

 private:
  std::unique_ptr<Stars> stars_;
};

TEST_P(Folds, CombineInRankOrderOnceForAll) {
  const int ranks = Folds::ranks();
  const Controls controls = this->controls();
  std::atomic<int> combined{0};
  run_ranks(ranks, [&](int rank) {
    Control& control = of(controls, rank);
    EXPECT_EQ(control.rank(), rank);
    EXPECT_EQ(control.size(), ranks);
    for (int i = 0; i < 300; ++i) {
      std::string expected;
      for (int r = 0; r < ranks; ++r) expected += fmt::format("{}/{};", i, r);
      EXPECT_EQ(fold(control, "step", fmt::format("{}/{};", i, rank),
                     [&](std::span<const Bytes> records, Bytes& result) {
                       ++combined;
                       concatenate(records, result);
                     }),
                expected);
    }
  });
  EXPECT_EQ(combined, 300);
}

TEST_P(Folds, ChannelsAreIndependent) {
  const int ranks = Folds::ranks();
  const Controls controls = this->controls();
  run_ranks(ranks, [&](int rank) {
    // A second thread of each rank saves while the first steps.
    std::thread saving([&] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(fold(of(controls, rank), "save", "s"),
                  std::string(static_cast<std::size_t>(ranks), 's'));
      }
    });
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(fold(of(controls, rank), "step", "t"),
                std::string(static_cast<std::size_t>(ranks), 't'));
    }
    saving.join();
  });
}

TEST_P(Folds, WhatCombineThrowsAllRanksThrow) {
  const int ranks = Folds::ranks();
  const Controls controls = this->controls();
  run_ranks(ranks, [&](int rank) {
    try {
      fold(of(controls, rank), "step", "x", [](std::span<const Bytes>, Bytes&) {
        throw InvalidArgument("rank 1: its learning rate is 0.2, that of rank 0 is 0.1");
      });
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const InvalidArgument& e) {
      EXPECT_STREQ(e.what(), "rank 1: its learning rate is 0.2, that of rank 0 is 0.1");
    }
    EXPECT_EQ(fold(of(controls, rank), "step", "y").size(), static_cast<std::size_t>(ranks));
  });
}

TEST_P(Folds, ATimeoutNamesTheFoldAndTheMissingRanks) {
  const int ranks = Folds::ranks();
  if (ranks < 3) return;
  const Controls controls = this->controls();
  const WithTimeout timeout(300ms);
  try {
    Bytes result;
    of(controls, 1).fold("save", {}, concatenate, result, "the save of step 7");
    FAIL() << "did not throw";
  } catch (const Timeout& e) {
    std::string missing = "0";
    for (int rank = 2; rank < ranks; ++rank) missing += fmt::format(", {}", rank);
    EXPECT_EQ(
        e.what(),
        "rank 1: the save of step 7 (save #0): timed out after 0.3 s waiting for ranks " + missing);
  }
  EXPECT_THROW(fold(of(controls, 0), "save", ""), RemoteError);  // late: it hears why
}

TEST_P(Folds, AnAbortWakesWhoeverWaitsAndTheFirstReasonStays) {
  const int ranks = Folds::ranks();
  if (ranks < 2) return;
  const Controls controls = this->controls();
  EXPECT_EQ(of(controls, 0).aborted(), std::nullopt);
  run_ranks(ranks, [&](int rank) {
    if (rank == 0) {
      of(controls, 0).abort("rank 0: first");
      of(controls, 0).abort("rank 0: second");
    }
    EXPECT_THROW(
        {
          try {
            fold(of(controls, rank), "step", "x");
          } catch (const RemoteError& e) {
            EXPECT_STREQ(e.what(), "rank 0: first");
            throw;
          }
        },
        RemoteError);
    EXPECT_EQ(of(controls, rank).aborted(), "rank 0: first");
  });
}

// Rank 0 waits in a fold for the others, who wait for what rank 0 has put into a stream.
TEST_P(Folds, AWaitingRankGoesOnWithItsDeferredStreams) {
  const int ranks = Folds::ranks();
  const Controls controls = this->controls();
  std::atomic<bool> others_are_there{ranks == 1};
  std::atomic<bool> streamed{false};
  Signal signal;
  run_ranks(ranks, [&](int rank) {
    HostStream stream(HostStream::Mode::deferred, "test");
    if (rank == 0) {
      stream.enqueue([&](bool) {
        if (!others_are_there.load()) return false;
        streamed.store(true);
        signal.notify();
        return true;
      });
    } else {
      others_are_there.store(true);
      EXPECT_TRUE(signal.wait([&] { return streamed.load(); }, Clock::now() + 60s));
    }
    fold(of(controls, rank), "step", "x");
    EXPECT_TRUE(streamed.load());
  });
}

INSTANTIATE_TEST_SUITE_P(
    , Folds, testing::Combine(testing::Values("in_process", "tcp"), testing::Values(1, 2, 3, 5, 8)),
    [](const auto& info) {
      return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
    });

}  // namespace
}  // namespace ration
