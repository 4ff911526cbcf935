// What launchers really set is what read_environment understands.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../job/command.hpp"
#include "slurm_cluster.hpp"

namespace ration::test {
namespace {

using nlohmann::json;

const std::string kPrint = RATION_PRINT_ENVIRONMENT;

/// With a deadline, and without what an outer launcher (of this test) has set.
Outcome run(const std::vector<std::string>& arguments) {
  std::vector<std::string> whole{"/usr/bin/env"};
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "RATION_RANK", "RATION_WORLD_SIZE", "RATION_PORT", "RATION_JOB_TOKEN", "SLURM_STEP_ID",
        "SLURM_JOB_ID", "SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
    whole.insert(whole.end(), {"-u", name});
  }
  whole.insert(whole.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                             "timeout", "-k", "5", "120"});
  whole.insert(whole.end(), arguments.begin(), arguments.end());
  return run_command(whole);
}

/// The ranks' lines, by rank; a launcher may put a word before each.
std::vector<json> lines_of(const std::string& out) {
  std::vector<json> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) {
    const auto begin = line.find('{');
    if (begin != std::string::npos) lines.push_back(json::parse(line.substr(begin)));
  }
  std::sort(lines.begin(), lines.end(),
            [](const json& a, const json& b) { return a.at("rank") < b.at("rank"); });
  return lines;
}

/// One job of `size` ranks, which agree on where to meet.
void expect_job(const std::string& out, const std::string& launcher, std::size_t size, bool mpi) {
  const std::vector<json> ranks = lines_of(out);
  ASSERT_EQ(ranks.size(), size) << out;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const json& it = ranks[rank];
    EXPECT_EQ(it.at("launcher"), launcher);
    EXPECT_EQ(it.at("rank"), rank);
    EXPECT_EQ(it.at("size"), size);
    EXPECT_GE(it.at("local_rank"), 0);
    EXPECT_LT(it.at("local_rank"), it.at("local_size"));
    EXPECT_EQ(it.at("mpi"), mpi);
    for (const char* same : {"hosts", "ports", "token"}) EXPECT_EQ(it.at(same), ranks[0].at(same));
    EXPECT_FALSE(it.at("hosts").empty());
  }
}

class Slurm : public testing::Test {
 protected:
  void SetUp() override {
    if (!SlurmCluster::is_available()) GTEST_SKIP() << "SKIPPED: no Slurm (Debian: slurm-wlm)";
    cluster_ = std::make_unique<SlurmCluster>();
  }
  [[nodiscard]] bool has_plugin(const std::string& name) const {
    const Outcome list = run({"srun", "--mpi=list"});
    return (list.out + list.err).find(name) != std::string::npos;
  }
  std::unique_ptr<SlurmCluster> cluster_;
};

TEST_F(Slurm, SrunStartsRanksOnTwoNodes) {
  const Outcome outcome = run({"srun", "-N2", "-n4", kPrint});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_job(outcome.out, "srun", 4, false);
  const std::vector<json> ranks = lines_of(outcome.out);
  std::size_t hosts = 0;  // ranks that are the first of theirs
  for (const json& rank : ranks) hosts += rank.at("local_rank") == 0;
  EXPECT_EQ(hosts, 2u);
  EXPECT_EQ(ranks.at(0).at("hosts").at(0), "rn1");
}

TEST_F(Slurm, SrunOnOneNode) {
  const Outcome outcome = run({"srun", "-N1", "-n3", kPrint});
  expect_job(outcome.out, "srun", 3, false);
  EXPECT_EQ(lines_of(outcome.out).at(0).at("hosts").at(0), "127.0.0.1");
}

TEST_F(Slurm, SrunWithMpiPlugins) {
  if (has_plugin("pmix")) {
    expect_job(run({"srun", "--mpi=pmix", "-N1", "-n2", kPrint}).out, "srun (PMIx)", 2, true);
  }
  if (!has_plugin("pmi2")) GTEST_SKIP() << "SKIPPED: no plugin pmi2";
  expect_job(run({"srun", "--mpi=pmi2", "-N2", "-n4", kPrint}).out, "srun (PMI-2)", 4, true);
}

#ifdef RATION_CHARGPT
TEST_F(Slurm, ATrainingBelowSrunGivesTheDigestOfThreads) {
  for (const char* stage : {"0", "3"}) {
    const std::vector<std::string> training{
        RATION_CHARGPT, "--stage", stage,     "--steps", "5",
        "--layers",     "2",       "--width", "64",      "--quiet"};
    std::vector<std::string> threads = training;
    threads.insert(threads.end(), {"--ranks", "4"});
    std::vector<std::string> processes{"srun", "-N1", "-n4"};
    processes.insert(processes.end(), training.begin(), training.end());
    const Outcome outcome = run(processes);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, testing::StartsWith("digest "));
    EXPECT_EQ(outcome.out, run(threads).out);
  }
}
#endif

// Its steps are jobs, each another one; its own shell is none.
TEST_F(Slurm, ABatchScriptsShellIsNoRank) {
  const std::string out = cluster_->folder() / "batch.out";
  const Outcome outcome = run({"sbatch", "-W", "-N2", "-n4", "-o", out, "--wrap",
                               kPrint + "; echo; srun " + kPrint + "; echo; srun " + kPrint});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Outcome printed = run({"cat", out});
  std::istringstream stream(printed.out);
  std::vector<std::string> parts(1);
  for (std::string line; std::getline(stream, line);) {
    line.empty() ? parts.emplace_back() : parts.back() += line + "\n";
  }
  ASSERT_EQ(parts.size(), 3u) << printed.out;
  EXPECT_EQ(parts[0], "null\n");
  expect_job(parts[1], "srun", 4, false);
  expect_job(parts[2], "srun", 4, false);
  EXPECT_NE(lines_of(parts[1]).at(0).at("token"), lines_of(parts[2]).at(0).at("token"));
}

TEST_F(Slurm, WhatSallocStartsIsNoRank) {
  EXPECT_EQ(run({"salloc", "-N2", "-n4", kPrint}).out, "null\n");
}

TEST_F(Slurm, MpirunBelowSbatch) {
  if (!is_installed("mpirun")) GTEST_SKIP() << "SKIPPED: no mpirun";
  const std::string out = cluster_->folder() / "batch.out";
  run({"sbatch", "-W", "-N1", "-n2", "-o", out, "--wrap", "mpirun -n 2 " + kPrint});
  expect_job(run({"cat", out}).out, "mpirun (Open MPI)", 2, true);
}

TEST(Mpirun, StartsRanks) {
  if (!is_installed("mpirun")) GTEST_SKIP() << "SKIPPED: no mpirun";
  const Outcome outcome = run({"mpirun", "--oversubscribe", "-n", "4", kPrint});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_job(outcome.out, "mpirun (Open MPI)", 4, true);
}

/// The command that starts four ranks, by the Python that has torch: RATION_PYTHON, PATH's, the
/// system's. Empty where none has.
std::vector<std::string> torchrun() {
  std::vector<std::string> candidates{"python3", "/usr/bin/python3"};
  if (const char* own = std::getenv("RATION_PYTHON")) candidates.insert(candidates.begin(), own);
  for (const std::string& python : candidates) {
    const Outcome version =
        run({python, "-c", "import torch.distributed.run, torch; print(torch.__version__)"});
    if (version.exit_code != 0) continue;
    // --standalone of 1.13 would take the same port in every test that runs meanwhile.
    const std::string port = std::to_string(20000 + getpid() % 20000);
    std::vector<std::string> command{
        python,           "-m",   "torch.distributed.run", "--no_python",
        "--rdzv_backend", "c10d", "--rdzv_endpoint",       "localhost:" + port,
        "--rdzv_id",      port,   "--nproc_per_node",      "4"};
    // 1.13 below Python 3.11 cannot take its own defaults of these two.
    if (version.out.starts_with("1.")) {
      command.insert(command.end(), {"--redirects", "0:1", "--tee", "0:1"});
    }
    command.push_back(kPrint);
    return command;
  }
  return {};
}

constexpr const char* kNoTorch = "SKIPPED: no Python with torch (Debian: python3-torch)";

TEST(Torchrun, StartsRanks) {
  const std::vector<std::string> command = torchrun();
  if (command.empty()) GTEST_SKIP() << kNoTorch;
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_job(outcome.out, "torchrun", 4, false);
}

TEST_F(Slurm, TorchrunBelowSrun) {
  std::vector<std::string> command = torchrun();
  if (command.empty()) GTEST_SKIP() << kNoTorch;
  command.insert(command.begin(), {"srun", "-N1", "-n1"});
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_job(outcome.out, "torchrun", 4, false);
}

}  // namespace
}  // namespace ration::test
