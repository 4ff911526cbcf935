// The main example saves, is stopped and goes on, as a user would have it.

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/checkpoint.hpp>

#include "command.hpp"
#include "failures/job.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> training(const std::string& flags, int steps,
                                  const std::string& more = "") {
  return words(std::string(RATION_CHARGPT) +
               " --layers 2 --width 32 --seq 32 --batch 12 --schedule constant --steps " +
               std::to_string(steps) + (flags.empty() ? "" : " " + flags) +
               (more.empty() ? "" : " " + more));
}

std::string digest_of(const std::vector<std::string>& command) {
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.last_line(), StartsWith("digest "));
  return outcome.last_line();
}

TEST(JobCheckpoints, ResumedEqualsNeverHavingStopped) {
  for (const char* kind :
       {"--dtype f32", "--dtype bf16 --master split --moments bf16 --micro-steps 2"}) {
    for (int stage = 0; stage < 4; ++stage) {
      const std::string flags = std::string("--ranks 3 --quiet ") + kind;
      const std::string before = flags + " --accumulation local --stage " + std::to_string(stage);
      const std::string after =
          flags + " --accumulation local --stage " + std::to_string(3 - stage);
      const Folder folder;
      digest_of(training(before, 5, "--save " + folder.path()));
      EXPECT_EQ(digest_of(training(after, 9, "--resume " + folder.path())),
                digest_of(training(before, 9)));
    }
  }
}

TEST(JobCheckpoints, SaveEveryKeepsTheNewest) {
  for (const char* beside : {"", " --save-beside"}) {
    const Folder folder;
    digest_of(training("--ranks 2 --quiet", 10,
                       "--save-every 3 --keep 3 --save " + folder.path() + beside));
    for (const int step : {1, 3}) {
      EXPECT_FALSE(std::filesystem::exists(folder / ("step-0000000" + std::to_string(step))));
    }
    for (const char* step : {"step-00000006", "step-00000009", "step-00000010"})
      EXPECT_TRUE(std::filesystem::exists(folder / step)) << step;
  }
}

// The digest of what was loaded, by another number of ranks, is that of what was saved.
TEST(JobCheckpoints, OfProcessesAreLoadedByThreads) {
#ifndef RATION_GLOO
  GTEST_SKIP() << "SKIPPED: built without gloo";
#else
  const Folder folder;
  const std::vector<Ended> ranks =
      run_job(3, {.command = training("--quiet --stage 3", 4, "--save " + folder.path())});
  for (const Ended& rank : ranks) ASSERT_EQ(rank.exit_code, 0) << rank.printed;
  const std::string loaded =
      digest_of(training("--quiet --ranks 2 --stage 1", 4, "--resume " + folder.path()));
  EXPECT_THAT(ranks[0].printed, HasSubstr(loaded));
#endif
}

TEST(JobCheckpoints, ASignalSavesAndEndsWell) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const Folder folder;
    const Outcome stopped =
        run_command(training("--ranks 3 --stage 2", 1000000, "--save " + folder.path()),
                    [&](pid_t child) { kill(child, signal); });
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_THAT(stopped.out, HasSubstr("stopped after step "));
    const auto latest = checkpoint::find_latest(folder.path());
    ASSERT_TRUE(latest);
    const int step = std::stoi(latest->substr(latest->rfind("step-") + 5));
    EXPECT_THAT(stopped.out, HasSubstr("stopped after step " + std::to_string(step)));
    EXPECT_EQ(digest_of(training("--ranks 3 --quiet", step, "--resume " + folder.path())),
              stopped.last_line());
  }
}

TEST(JobCheckpoints, ResumeOfNothingIsAnErrorUnlessAutomatic) {
  const Folder folder;
  const Outcome refused =
      run_command(training("--ranks 2 --quiet", 3, "--resume " + folder.path()));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("there is no checkpoint in this folder"));
  const std::string fresh = digest_of(training("--ranks 2 --quiet", 3));
  const std::string automatic = "--resume auto --save " + folder.path();
  EXPECT_EQ(digest_of(training("--ranks 2 --quiet", 3, automatic)), fresh);
  EXPECT_EQ(digest_of(training("--ranks 2 --quiet", 6, automatic)),
            digest_of(training("--ranks 2 --quiet", 6)));
  EXPECT_EQ(run_command(training("--ranks 2", 3, "--resume auto")).exit_code, 2);
}

}  // namespace
}  // namespace ration::test
