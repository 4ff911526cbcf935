// Every operation, every way in which a rank can go wrong, at the first and at the last rank: the
// others end with an error that names it, within the deadline. Real processes.
//   RATION_FAILURES=full   all cases; otherwise a short choice of them

#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job.hpp"

namespace ration::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kRanks = 3;
constexpr double kDeadline = 2;  // seconds

enum class Launcher { plain, mpirun, mpirun_recovery };

struct Case {
  Launcher launcher;
  std::string operation;
  std::string fault;
  int rank;
};

std::string name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::plain:
      return "plain";
    case Launcher::mpirun:
      return "mpirun";
    case Launcher::mpirun_recovery:
      return "mpirun_recovery";
  }
  return "?";
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c.launcher) << " " << c.operation << " " << c.fault << " " << c.rank;
}

bool full() {
  const char* wish = std::getenv("RATION_FAILURES");
  return wish && std::string_view(wish) == "full";
}

// A barrier has no size; what a fold carries has no order.
bool can_be(const Case& c) {
  return !(c.operation == "barrier" && c.fault == "size") &&
         !(c.operation == "fold" && c.fault == "order");
}

std::vector<Case> cases() {
  std::vector<Case> result;
  std::vector<Launcher> launchers{Launcher::plain};
  if (RATION_TEST_MPI)
    launchers.insert(launchers.end(), {Launcher::mpirun, Launcher::mpirun_recovery});
  int number = 0;
  for (const Launcher launcher : launchers) {
    for (const char* operation :
         {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "send", "barrier", "fold"}) {
      for (const char* fault : {"kill", "stop", "throw", "return", "size", "order"}) {
        for (const int rank : {0, kRanks - 1}) {
          const Case c{launcher, operation, fault, rank};
          if (!can_be(c)) continue;
          ++number;
          if (full() || number % 9 == 1) result.push_back(c);
        }
      }
    }
  }
  return result;
}

// What the others say of it.
testing::Matcher<std::string> explains(const Case& c) {
  const std::string who = fmt::format("rank {}", c.rank);
  if (c.fault == "throw") return HasSubstr(who + ": out of cheese");
  if (c.fault == "kill") return HasSubstr(who + " has died");
  if (c.fault == "return") return HasSubstr(who + " has ended without it");
  if (c.fault == "stop") {
    return AnyOf(HasSubstr(fmt::format("waiting for rank {}", c.rank)),
                 HasSubstr(who + " has not been heard of"));
  }
  return HasSubstr(who);
}

int lines_of_ranks(const std::string& printed) {
  int count = 0;
  const std::string sign = ">:ration: ";
  for (auto at = printed.find(sign); at != std::string::npos; at = printed.find(sign, at + 1))
    ++count;
  return count;
}

class Failures : public testing::TestWithParam<Case> {};

JobOptions options(const Case& c) {
  JobOptions options;
  options.command = {RATION_RANK_PROGRAM, c.operation, c.fault, std::to_string(c.rank)};
  options.environment = {{"RATION_TIMEOUT", fmt::format("{}", kDeadline)},
                         {"RATION_POSTMORTEM_DIR", testing::TempDir() + "ration_failures"}};
  options.patience = std::chrono::seconds(static_cast<int>(kDeadline) + 15);
  return options;
}

void expect_within(const Case& c, double seconds) {
  // A deadline is for what keeps silent; what can be seen is said at once.
  EXPECT_LE(seconds, (c.fault == "stop" ? kDeadline : 0.0) + 5.0);
}

TEST_P(Failures, TheOthersNameTheRank) {
  const Case& c = GetParam();
  JobOptions options = test::options(c);
  if (c.launcher == Launcher::plain) {
    if (c.fault == "stop")
      options.enough = [](int gone, const auto&) { return gone == kRanks - 1; };
    const std::vector<Ended> ended = run_job(kRanks, options);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Ended& e = ended[static_cast<std::size_t>(rank)];
      if (rank == c.rank && (c.fault == "kill" || c.fault == "stop" || c.fault == "return"))
        continue;
      EXPECT_EQ(e.exit_code, 1) << "rank " << rank << ": " << e.printed;
      EXPECT_THAT(e.printed, explains(c)) << "rank " << rank;
      expect_within(c, e.at.count());
    }
    return;
  }
  std::vector<std::string> command{"mpirun", "-n", std::to_string(kRanks), "--oversubscribe",
                                   "--tag-output"};
  if (c.launcher == Launcher::mpirun_recovery) command.emplace_back("--enable-recovery");
  options.command.insert(options.command.begin(), command.begin(), command.end());
  options.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
  options.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  if (c.fault == "stop") {  // mpirun waits for it
    options.enough = [](int, const std::string& printed) {
      return lines_of_ranks(printed) >= kRanks - 1;
    };
  }
  const Ended ended = run_launcher(options);
  if (c.launcher == Launcher::mpirun) {  // with recovery, mpirun itself says 0
    EXPECT_NE(ended.exit_code, 0);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == c.rank && (c.fault == "kill" || c.fault == "stop" || c.fault == "return")) continue;
    EXPECT_THAT(ended.printed, HasSubstr(fmt::format("[1,{}]<stderr>:ration: ", rank)));
  }
  EXPECT_THAT(ended.printed, explains(c));
  // A stopped rank keeps mpirun waiting with --enable-recovery; the others are judged by their
  // lines.
  if (c.fault != "stop") expect_within(c, ended.at.count());
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}_{}_{}", name_of(c.launcher), c.operation, c.fault, c.rank);
}

INSTANTIATE_TEST_SUITE_P(Jobs, Failures, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace ration::test
