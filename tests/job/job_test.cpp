// Whole jobs: what the main example promises its user. RATION_JOB_STEPS sets the steps of the
// digest tests (default 10).

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

Outcome chargpt(const std::string& flags, const std::function<void(pid_t)>& while_running = {}) {
  std::vector<std::string> arguments = {RATION_CHARGPT};
  for (const std::string& word : words(flags)) arguments.push_back(word);
  return run_command(arguments, while_running);
}

std::string steps() {
  const char* value = std::getenv("RATION_JOB_STEPS");
  return value ? value : "10";
}

nlohmann::json report_of(const std::string& flags) {
  const Folder folder;
  const std::string path = folder / "report.json";
  const Outcome outcome = chargpt(flags + " --quiet --report " + path);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

class Digests : public testing::TestWithParam<std::string> {};

// "--ranks 4 --micro-steps 4" as a name.
std::string as_name(std::string flags) {
  std::string name;
  for (const char c : flags) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
    if (c == ' ' && !name.empty() && name.back() != '_') name += '_';
  }
  return name;
}

TEST_P(Digests, AreTheSameAtEveryStage) {
  for (const std::string type : {"--dtype f32", "--dtype bf16", "--dtype bf16 --master split"}) {
    const std::string flags = GetParam() + " " + type + " --quiet --steps " + steps();
    const Outcome first = chargpt(flags + " --stage 0");
    ASSERT_EQ(first.exit_code, 0) << first.err;
    ASSERT_TRUE(first.out.starts_with("digest ") && first.out.size() == 24) << first.out;
    for (const std::string stage : {"1", "2", "3"}) {
      EXPECT_EQ(chargpt(flags + " --stage " + stage).out, first.out)
          << flags << " --stage " << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, Digests,
                         testing::Values("--ranks 4", "--ranks 3 --width 36 --heads 3 --batch 12",
                                         "--ranks 5 --batch 10",
                                         "--ranks 4 --micro-steps 4 --accumulation local",
                                         "--ranks 4 --micro-steps 4 --accumulation sharded"),
                         [](const auto& info) { return as_name(info.param); });

TEST(Job, RepeatsToTheSameDigest) {
  const std::string flags = "--ranks 4 --stage 3 --quiet --steps " + steps();
  EXPECT_EQ(chargpt(flags).out, chargpt(flags).out);
}

TEST(Job, TrainsAnUntrainedModel) {
  const Outcome untrained = chargpt("--ranks 2 --quiet --steps 0");
  ASSERT_EQ(untrained.exit_code, 0) << untrained.err;
  EXPECT_NE(untrained.out, chargpt("--ranks 2 --quiet --steps 1").out);
  // The initial values do not depend on the number of ranks.
  EXPECT_EQ(untrained.out, chargpt("--ranks 5 --batch 10 --quiet --steps 0").out);
}

TEST(Job, LosesWhatOneRankLoses) {
  const auto one = report_of("--ranks 1 --stage 0 --steps 50");
  const auto four = report_of("--ranks 4 --stage 3 --steps 50");
  ASSERT_EQ(one.at("loss").size(), 50u);
  ASSERT_EQ(four.at("loss").size(), 50u);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_NEAR(one["loss"][i].get<double>(), four["loss"][i].get<double>(), 1e-4) << "step " << i;
  }
  EXPECT_LT(four["loss"][49].get<double>(), four["loss"][0].get<double>());
}

// In tiles that divide nothing, with and without io_uring, some of them staying in memory.
TEST(Job, GivesTheSameDigestWithStateOnDisk) {
  for (const char* ranks :
       {"--ranks 3 --width 36 --heads 3 --batch 12", "--ranks 4 --dtype bf16"}) {
    const std::string flags = std::string(ranks) + " --quiet --steps " + steps();
    const Outcome expected = chargpt(flags + " --stage 1");
    ASSERT_EQ(expected.exit_code, 0) << expected.err;
    for (const char* how :
         {"--stage 1 --offload disk --tile-elements 7000", "--stage 2 --offload host",
          "--stage 2 --offload disk --tile-elements 5000 --resident-mb 1",
          "--stage 3 --offload disk --tile-elements 3333", "--stage 3 --offload disk"}) {
      for (const char* io : {"", "threads"}) {
        setenv("RATION_IO", io, 1);
        const Outcome outcome = chargpt(flags + " " + how);
        unsetenv("RATION_IO");
        EXPECT_EQ(outcome.out, expected.out) << how << ", " << io << ": " << outcome.err;
      }
    }
  }
}

TEST(Job, SaysWhichSwapFolderIsMissing) {
  const Outcome outcome =
      chargpt("--ranks 2 --steps 1 --quiet --offload disk --offload-dir /nowhere/at/all");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("/nowhere/at/all"), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(Job, ReportsExactTrafficAndPlannedMemory) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto report =
        report_of("--ranks 4 --steps 3 --dtype bf16 --stage " + std::to_string(stage));
    const auto bytes = report.at("parameters").get<double>() * 2;
    for (const auto& rank : report.at("traffic")) {
      const double sent = rank.at("sent_bytes_per_step").get<double>() / (bytes * 3 / 4);
      // The layer sizes pad by less than 2 %.
      if (stage < 3) {
        EXPECT_NEAR(sent, 2.0, 0.04);
      } else {
        EXPECT_LE(sent, 3.06);
        EXPECT_GT(sent, 2.0);
      }
      EXPECT_LT(rank.at("control_bytes_per_step").get<double>(), 1024);
    }
    for (const auto& rank : report.at("memory")) {
      for (const std::string kind : {"parameters", "gradients", "optimizer_state", "buffers"}) {
        EXPECT_EQ(rank.at("planned").at(kind), rank.at("allocated").at(kind)) << kind;
      }
    }
  }
}

TEST(Job, StopsOnSigtermWithADigest) {
  const Outcome outcome =
      chargpt("--ranks 3 --batch 12 --steps 100000", [](pid_t child) { kill(child, SIGTERM); });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.last_line().starts_with("digest ")) << outcome.last_line();
}

TEST(Job, WritesATraceOfEveryRank) {
  const Folder folder;
  const std::string path = folder / "trace.json";
  ASSERT_EQ(chargpt("--ranks 3 --batch 12 --steps 2 --quiet --trace " + path).exit_code, 0);
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  std::map<std::pair<int, std::string>, int> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X")
      ++spans[{event.at("pid").get<int>(), event.at("name").get<std::string>()}];
  }
  for (const int rank : {0, 1, 2}) {
    for (const std::string name : {"gather", "reduce_scatter", "update"})
      EXPECT_GT((spans[{rank, name}]), 0) << rank << name;
  }
}

using Refused = std::pair<std::string, std::string>;  // flags, and what the line says

class BadInput : public testing::TestWithParam<Refused> {};

TEST_P(BadInput, GetsOneLineAndANonZeroExit) {
  const auto [flags, expected] = GetParam();
  const Outcome outcome = chargpt(flags);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_LT(outcome.exit_code, 128);
  EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadInput,
    testing::Values(Refused{"--ranks 3", "batch"}, Refused{"--ranks 4 --micro-steps 3", "batch"},
                    Refused{"--stage 4", "stage"}, Refused{"--ranks x", "ranks"},
                    Refused{"--ranks 0", "ranks"}, Refused{"--width 30 --heads 4", "heads"},
                    Refused{"--text /nonexistent/file", "/nonexistent/file"},
                    Refused{"--text /etc/debian_version", "fewer than one batch"},
                    Refused{"--report /nonexistent/r.json --steps 1", "/nonexistent"},
                    Refused{"--trace /nonexistent/t.json --steps 1", "/nonexistent"},
                    Refused{"--master split", "split"}, Refused{"--unknown", "unknown"},
                    Refused{"--lr -1", "lr"}),
    [](const auto& info) { return as_name(info.param.first); });

}  // namespace
}  // namespace ration::test
