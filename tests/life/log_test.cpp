// Levels and sinks of the log.

#include <ration/log.hpp>

#include <cstdlib>
#include <mutex>
#include <tuple>

#include "core/log.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

class Log : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
  }
};

void log_with(const char* level) {
  level ? setenv("RATION_LOG", level, 1) : unsetenv("RATION_LOG");
  log::debug("a {}", "debug line");
  log::info("an info line");
  log::warning("a warning line");
  std::exit(0);
}

// Each in a process of its own: the variable is read once.
TEST_F(Log, TheVariableChoosesTheLevel) {
  const auto done = testing::ExitedWithCode(0);
  EXPECT_EXIT(log_with("debug"), done,
              "^ration debug: a debug line\nration info: an info line\nration warning: a warning "
              "line\n$");
  EXPECT_EXIT(log_with("info"), done,
              "^ration info: an info line\nration warning: a warning line\n$");
  EXPECT_EXIT(log_with("warning"), done, "^ration warning: a warning line\n$");
  EXPECT_EXIT(log_with(nullptr), done, "^ration warning: a warning line\n$");
  EXPECT_EXIT(log_with("off"), done, "^$");
}

using Line = std::tuple<LogLevel, int, std::string>;

TEST_F(Log, ASinkTakesTheLinesWithLevelAndRank) {
  std::vector<Line> lines;
  set_log_sink([&](LogLevel level, int rank, std::string_view line) {
    lines.emplace_back(level, rank, std::string(line));  // never from two threads at once
  });
  set_log_level(LogLevel::info);
  log::debug("not this");
  log::info("outside");
  run_ranks(3, [](int rank) { log::warning("from {}", rank); });
  EXPECT_THAT(lines, testing::UnorderedElementsAre(Line{LogLevel::info, -1, "outside"},
                                                   Line{LogLevel::warning, 0, "from 0"},
                                                   Line{LogLevel::warning, 1, "from 1"},
                                                   Line{LogLevel::warning, 2, "from 2"}));
  lines.clear();
  set_log_level(LogLevel::off);
  log::warning("nor this");
  EXPECT_TRUE(lines.empty());
}

TEST_F(Log, WithoutASinkLinesGoToStderrWithTheRank) {
  set_log_sink([](LogLevel, int, std::string_view) { ADD_FAILURE(); });
  set_log_sink({});
  testing::internal::CaptureStderr();
  run_ranks(1, [](int) { log::warning("said"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ration warning: rank 0: said\n");
}

TEST_F(Log, InitializingSaysWhatWasLaidOut) {
  std::vector<Line> lines;
  set_log_sink([&](LogLevel level, int rank, std::string_view line) {
    lines.emplace_back(level, rank, std::string(line));
  });
  set_log_level(LogLevel::info);
  with_ranks(2, [](const ProcessGroup& group) { TinyTrainer(group, {.config = {.stage = 3}}); });
  EXPECT_THAT(lines,
              testing::Contains(testing::FieldsAre(
                  LogLevel::info, 1,
                  testing::AllOf(testing::HasSubstr("5 units"), testing::HasSubstr("stage 3"),
                                 testing::HasSubstr("2 ranks")))));
}

}  // namespace
}  // namespace ration::test
