// How many ranks are started.

#include <atomic>
#include <mutex>
#include <set>

#include "launched.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Ranks that ran; every one of 0..size-1 once.
int started(const std::vector<std::string>& arguments, const LaunchOptions& options = {}) {
  std::mutex mutex;
  std::multiset<int> ranks;
  int size = 0;
  const Launched result = launched(
      arguments,
      [&](World& world) {
        const std::lock_guard lock(mutex);
        ranks.insert(world.rank());
        size = world.size();
      },
      options);
  EXPECT_EQ(result.status, 0) << result.printed;
  EXPECT_EQ(result.printed, "");
  std::multiset<int> expected;
  for (int rank = 0; rank < size; ++rank) expected.insert(rank);
  EXPECT_EQ(ranks, expected);
  return size;
}

TEST(Launch, StartsOneRankUnlessTold) {
  const Environment none("RATION_RANKS", nullptr);
  EXPECT_EQ(started({}), 1);
  EXPECT_EQ(started({}, {.ranks = 4}), 4);
}

TEST(Launch, TheEnvironmentWinsOverTheProgram) {
  const Environment two("RATION_RANKS", "2");
  EXPECT_EQ(started({}, {.ranks = 4}), 2);
}

TEST(Launch, TheCommandLineWinsOverTheEnvironment) {
  const Environment two("RATION_RANKS", "2");
  EXPECT_EQ(started({"--ranks", "3"}, {.ranks = 4}), 3);
  EXPECT_EQ(started({"--ranks=5"}, {.ranks = 4}), 5);
  EXPECT_EQ(started({"--steps", "7", "--ranks", "3", "file"}), 3);
}

TEST(Launch, LeavesOtherArgumentsAlone) {
  const Environment none("RATION_RANKS", nullptr);
  EXPECT_EQ(started({"--ranksome=5"}, {.ranks = 2}), 2);
  EXPECT_EQ(started({"--", "--ranks", "3"}, {.ranks = 2}), 2) << "arguments of another program";
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& text,
                    const LaunchOptions& options = {}) {
  std::atomic<int> ran{0};
  const Launched result = launched(
      arguments, [&](World&) { ++ran; }, options);
  EXPECT_EQ(result.status, 1) << text;
  EXPECT_EQ(ran, 0);
  EXPECT_THAT(result.printed, AllOf(testing::StartsWith("ration: "), HasSubstr(text)));
  EXPECT_EQ(std::count(result.printed.begin(), result.printed.end(), '\n'), 1) << result.printed;
  EXPECT_EQ(result.printed.back(), '\n');
}

TEST(Launch, RefusesNumbersOfRanksThatMakeNoSenseInOneLine) {
  const Environment none("RATION_RANKS", nullptr);
  for (const char* value : {"0", "-1", "x", "3x", "", " 3", "1025", "99999999999"}) {
    expect_refused({"--ranks", value}, "--ranks is \"" + std::string(value) + "\"");
    expect_refused({"--ranks=" + std::string(value)}, "from 1 to 256");
    const Environment bad("RATION_RANKS", value);
    expect_refused({}, "RATION_RANKS is \"" + std::string(value) + "\"");
  }
  expect_refused({"--ranks"}, "--ranks wants a number");
  expect_refused({}, "LaunchOptions::ranks is \"0\"", {.ranks = 0});
}

TEST(Launch, RefusesAThreadsModeThatIsNone) {
  const Environment bad("RATION_THREADS", "fast");
  expect_refused({}, "RATION_THREADS=\"fast\"");
}

TEST(Launch, CanBeCalledAgain) {
  for (const int ranks : {3, 1, 2}) EXPECT_EQ(started({}, {.ranks = ranks}), ranks);
}

}  // namespace
}  // namespace ration::test
