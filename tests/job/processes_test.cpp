// The main example as processes: the digest is that of threads, whoever started them.

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.hpp"
#include "failures/job.hpp"

namespace ration::test {
namespace {

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const auto begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? std::string::npos : begin));
}

std::string steps() {
  const char* value = std::getenv("RATION_JOB_STEPS");
  return value ? value : "5";
}

std::vector<std::string> chargpt(const std::string& flags) {
  std::vector<std::string> command{RATION_CHARGPT, "--quiet", "--steps", steps()};
  for (const std::string& word : words(flags)) command.push_back(word);
  return command;
}

struct Job {
  std::string name;
  int ranks;
  std::string flags;
};

void PrintTo(const Job& job, std::ostream* out) {
  *out << job.ranks << " ranks " << job.flags;
}

class Processes : public testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    const Job& job = GetParam();
    auto command = chargpt(job.flags);
    command.insert(command.end(), {"--ranks", std::to_string(job.ranks)});
    const Outcome threads = run_command(command);
    ASSERT_EQ(threads.exit_code, 0) << threads.err;
    wanted_ = threads.last_line();
    ASSERT_THAT(wanted_, testing::StartsWith("digest "));
    options_.command = chargpt(job.flags);
    options_.patience = std::chrono::seconds(240);
    options_.environment = {{"RATION_TIMEOUT", "120"},
                            {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  }

  void expect_from(std::vector<std::string> launcher) {
    options_.command.insert(options_.command.begin(), launcher.begin(), launcher.end());
    const Ended ended = run_launcher(options_);
    EXPECT_EQ(ended.exit_code, 0) << ended.printed;
    EXPECT_THAT(ended.printed, testing::HasSubstr(wanted_));
  }

  std::string wanted_;
  JobOptions options_;
};

TEST_P(Processes, ByHandGiveTheDigestOfThreads) {
  for (const char* memory : {"on", "off"}) {
    options_.environment["RATION_SHARED_MEMORY"] = memory;
    const std::vector<Ended> ended = run_job(GetParam().ranks, options_);
    for (const Ended& e : ended) EXPECT_EQ(e.exit_code, 0) << e.printed;
    EXPECT_EQ(last_line(ended[0].printed), wanted_) << "RATION_SHARED_MEMORY=" << memory;
  }
}

TEST_P(Processes, ByMpirunGiveTheDigestOfThreads) {
  if (!RATION_TEST_MPI) GTEST_SKIP() << "built without MPI";
  expect_from({"mpirun", "--oversubscribe", "-n", std::to_string(GetParam().ranks)});
}

TEST_P(Processes, ByTorchrunGiveTheDigestOfThreads) {
  // Debian's, of torch 1.13, cannot start anything: it is older than its Python.
  static const bool works =
      std::system("torchrun --standalone --no_python --nproc_per_node=1 true >/dev/null 2>&1") == 0;
  if (!works) GTEST_SKIP() << "no torchrun here that can start a program (pip install torch)";
  // torch 1.13 knows the names with underscores only, later ones both.
  expect_from({"torchrun", "--standalone", "--no_python",
               "--nproc_per_node=" + std::to_string(GetParam().ranks)});
}

std::vector<Job> jobs() {
  std::vector<Job> all;
  for (const char* type : {"f32", "bf16"}) {
    for (const int stage : {0, 1, 2, 3}) {
      all.push_back({std::string("4_") + type + "_stage" + std::to_string(stage), 4,
                     std::string("--dtype ") + type + " --stage " + std::to_string(stage)});
    }
  }
  all.push_back({"3_stage3", 3, "--batch 12 --stage 3"});
  all.push_back({"5_stage2", 5, "--batch 10 --stage 2 --micro-steps 2 --accumulation sharded"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Jobs, Processes, testing::ValuesIn(jobs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ration::test
