// `ration bench collectives` as threads and between processes. The command itself compares each
// contender's sums with what they should be.

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <ration/version.hpp>

#include "../job/command.hpp"

namespace ration::test {
namespace {

using nlohmann::json;

const std::string kCommand = RATION_COMMAND;

/// By a shell, with a deadline and without what an outer launcher (of this test) has set.
Outcome shell(const std::string& script) {
  std::vector<std::string> whole{"/usr/bin/env"};
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RATION_RANK",
                           "RATION_WORLD_SIZE", "RATION_RANKS", "SLURM_STEP_ID"}) {
    whole.insert(whole.end(), {"-u", name});
  }
  whole.insert(whole.end(),
               {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "RATION_TIMEOUT=60",
                "timeout", "-k", "5", "200", "/bin/sh", "-c", script});
  return run_command(whole);
}

bool is_installed(const std::string& name) {
  return shell("command -v " + name).exit_code == 0;
}

bool is_built(const std::string& backend) {
  std::istringstream summary(build_summary());
  for (std::string name, built; summary >> name >> built; std::getline(summary, built)) {
    if (name == backend) return built == "yes";
  }
  return false;
}

/// The ranks of a job by hand, all at once.
std::string by_hand(int ranks, const std::string& flags) {
  std::string script =
      fmt::format("set -e; export MASTER_ADDR=127.0.0.1 MASTER_PORT={} WORLD_SIZE={}; ",
                  20000 + getpid() % 10000, ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    script += fmt::format("RANK={} {}{} & ", rank, kCommand, flags);
  }
  return script + fmt::format("RANK=0 {}{}; wait", kCommand, flags);
}

std::set<std::string> peers_of(const json& one) {
  std::set<std::string> names;
  for (const json& peer : one.at("peers")) {
    names.insert(peer.at("name"));
    EXPECT_GT(peer.at("seconds"), 0.0) << one.dump();
    EXPECT_GT(peer.at("ratio"), 0.0) << one.dump();
  }
  return names;
}

/// Three operations of one size.
void expect_measured(const Outcome& outcome, const std::string& backend, int ranks,
                     const std::set<std::string>& peers) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json all = json::parse(outcome.out);  // of one rank, or it would be no JSON
  EXPECT_EQ(all.at("backend"), backend);
  std::vector<std::string> operations;
  for (const json& one : all.at("collectives")) {
    operations.push_back(one.at("operation"));
    EXPECT_EQ(one.at("ranks"), ranks);
    EXPECT_EQ(one.at("bytes"), 1 << 20);
    EXPECT_EQ(one.at("rounds"), 2);
    EXPECT_GT(one.at("seconds"), 0.0);
    EXPECT_GT(one.at("triad_seconds"), 0.0);
    EXPECT_EQ(peers_of(one), peers);
  }
  EXPECT_EQ(operations, (std::vector<std::string>{"reduce_scatter", "all_gather", "all_reduce"}));
}

const std::string kFlags = " bench collectives --sizes 1 --rounds 2 --json";

TEST(BenchCollectives, AmongThreads) {
  expect_measured(shell(kCommand + kFlags + " --ranks 3"), "threads", 3, {});
}

TEST(BenchCollectives, BetweenProcessesByHandBesideGlooAndThreads) {
  if (!is_built("gloo")) GTEST_SKIP() << "SKIPPED: built without gloo";
  expect_measured(shell(by_hand(2, kFlags)), "gloo", 2, {"gloo", "threads"});
  expect_measured(shell(by_hand(3, kFlags)), "gloo", 3, {"gloo", "threads"});
}

TEST(BenchCollectives, BelowMpirunBesideMpiToo) {
  if (!is_built("mpi")) GTEST_SKIP() << "SKIPPED: built without MPI";
  if (!is_installed("mpirun")) GTEST_SKIP() << "SKIPPED: no mpirun";
  std::set<std::string> peers{"MPI", "threads"};
  if (is_built("gloo")) peers.insert("gloo");
  expect_measured(shell("mpirun --oversubscribe -n 2 " + kCommand + kFlags), "mpi", 2, peers);
}

TEST(BenchCollectives, TheTableNamesEveryContender) {
  const Outcome outcome = shell(kCommand + " bench collectives --sizes 1 --rounds 1 --ranks 2");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* word : {"ours ms", "triad ms", "reduce_scatter", "all_gather", "all_reduce"}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word << "\n" << outcome.out;
  }
}

TEST(BenchCollectives, OverlapSaysWhatIsLeftOfAReduce) {
  const Outcome outcome = shell(kCommand + kFlags + " --ranks 2 --overlap");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json one = json::parse(outcome.out).at("overlap").at(0);
  EXPECT_GT(one.at("seconds"), 0.0);
  EXPECT_GE(one.at("left_by_work_seconds"), 0.0);
  EXPECT_GE(one.at("left_by_clock_seconds"), 0.0);
  EXPECT_GT(one.at("slowdown"), 0.0);
}

TEST(BenchCollectives, VariablesThatContradictEachOtherAreBadUsage) {
  const Outcome outcome = shell("RANK=2 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 " + kCommand + kFlags);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("RANK"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace ration::test
