// Ranks that are processes, and what becomes of a job when one of them is killed or stopped.

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/rank_process.hpp"
#include "control/raw_peer.hpp"
#include "control/stars.hpp"
#include "control/tcp/protocol.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

Deadline soon() {
  return Clock::now() + 60s;
}

std::uint16_t free_port() {
  return Listener({0}).port();
}

/// Ranks that have met and fold.
std::vector<RankProcess> start_job(int size, double timeout, int doer = -1,
                                   const std::string& deed = "") {
  std::vector<RankProcess> ranks;
  const std::uint16_t port = free_port();
  const std::string token = any_token();
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back(rank, size, port, token, timeout, rank == doer ? deed : "");
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.line(soon()), "met");
  return ranks;
}

// The type of the error is left open: RemoteError when the rank was not waiting just then.
std::string died(int rank, pid_t pid) {
  return fmt::format("Error: rank {} has died: its connection was closed (host {}, pid {})", rank,
                     tcp::Process::self().host, pid);
}

TEST(Processes, FoldAndEndTogether) {
  auto ranks = start_job(4, 60);
  ranks[2].end_input();
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.line(soon()), "done");
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.exit_code(), 0);
}

TEST(Processes, AKilledRankIsNamedAtOnceByAllOthers) {
  for (const int victim : {0, 1, 3}) {
    auto ranks = start_job(4, 60);
    const pid_t pid = ranks[static_cast<std::size_t>(victim)].pid();
    const auto start = Clock::now();
    ranks[static_cast<std::size_t>(victim)].kill(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(ranks[static_cast<std::size_t>(rank)].line(soon()), EndsWith(died(victim, pid)));
    }
    const std::chrono::duration<double> seconds = Clock::now() - start;
    std::cout << "named after " << seconds.count() << " s\n";
    EXPECT_LT(seconds, 2s);  // milliseconds, but for a busy machine
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].exit_code(),
                rank == victim ? 128 + SIGKILL : 3);
    }
  }
}

TEST(Processes, ARankThatEndsWithoutAWordHasDied) {
  auto ranks = start_job(3, 60, 2, "quit");
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(ranks[rank].line(soon()), EndsWith(died(2, ranks[2].pid())));
  }
}

TEST(Processes, WhatARankSaysLastIsHeardAndItsEndChangesNothing) {
  auto ranks = start_job(3, 60, 1, "abort");
  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(ranks[rank].line(soon()), "RemoteError: rank 1: had enough");
    EXPECT_EQ(ranks[rank].exit_code(), 3);
  }
}

TEST(Processes, AStoppedRankIsNamedWhenTheDeadlineHasPassed) {
  for (const int victim : {0, 2}) {
    auto ranks = start_job(3, 3);
    const auto start = Clock::now();
    ranks[static_cast<std::size_t>(victim)].kill(SIGSTOP);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const std::string line = ranks[static_cast<std::size_t>(rank)].line(soon());
      EXPECT_THAT(line, AllOf(StartsWith("Timeout: "), HasSubstr(fmt::format("rank {}", victim))));
      std::cout << line << "\n";
    }
    const auto seconds = Clock::now() - start;
    EXPECT_GT(seconds, 1500ms);
    EXPECT_LT(seconds, 3s + 5s);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].exit_code(), 3);
    }
    // Going on, it learns that the job has ended.
    ranks[static_cast<std::size_t>(victim)].kill(SIGCONT);
    EXPECT_NE(ranks[static_cast<std::size_t>(victim)].line(soon()), "done");
    EXPECT_EQ(ranks[static_cast<std::size_t>(victim)].exit_code(), 3);
  }
}

TEST(Processes, AStopShorterThanTheDeadlineHarmsNothing) {
  auto ranks = start_job(3, 20);
  for (const std::size_t victim : {0, 1}) {
    ranks[victim].kill(SIGSTOP);
    int status = 0;
    ::waitpid(ranks[victim].pid(), &status, WUNTRACED);
    ASSERT_TRUE(WIFSTOPPED(status));
    std::this_thread::sleep_for(2500ms);  // a stop of that length is what is tested
    ranks[victim].kill(SIGCONT);
  }
  ranks[0].end_input();
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.line(soon()), "done");
}

TEST(Processes, ARankThatDiesBeforeAllHaveComeEndsTheMeeting) {
  const std::uint16_t port = free_port();
  const std::string token = any_token();
  RankProcess zero(0, 3, port, token, 60);
  RankProcess one(1, 3, port, token, 60);
  EXPECT_TRUE(eventually([&] { return seat_is_taken(port, token, 1, 3); }));
  one.kill(SIGKILL);
  EXPECT_THAT(zero.line(soon()), EndsWith(died(1, one.pid())));
}

}  // namespace
}  // namespace ration
