// `ration postmortem` as a user runs it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../job/command.hpp"
#include "failed_job.hpp"

namespace ration::test {
namespace {

using testing::HasSubstr;

Outcome postmortem(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {RATION_COMMAND, "postmortem"});
  return run_command(arguments);
}

void fail(int rank, Communicator& c) {
  const auto stream = c.make_stream("test", 64);
  all_reduce(c, *stream, rank == 1 ? "b" : "a");
}

TEST(PostmortemCommand, NamesTheFaultAndExitsWithOne) {
  const RecordFolder folder;
  run_failing_job(3, fail);
  const Outcome outcome = postmortem({folder.path()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, testing::StartsWith("3 of 3 ranks left a record\n"
                                               "diverged: rank 1 called all_reduce #0 \"b\""));
  EXPECT_EQ(outcome.err, "");
}

TEST(PostmortemCommand, SpeaksJson) {
  const RecordFolder folder;
  run_failing_job(3, fail);
  const Outcome outcome = postmortem({folder.path(), "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("world"), 3);
  EXPECT_EQ(json.at("ranks").size(), 3u);
  EXPECT_EQ(json.at("findings")[0].at("kind"), "diverged");
  EXPECT_EQ(json.at("findings")[0].at("ranks"), nlohmann::json::array({1}));
}

TEST(PostmortemCommand, ExitsWithZeroWhereNothingIsWrong) {
  const RecordFolder folder;
  run_failing_job(2, [](int, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    all_reduce(c, *stream, "a");
  });
  const Outcome outcome = postmortem({folder.path()});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("no fault found"));
}

TEST(PostmortemCommand, NamesABrokenFile) {
  const RecordFolder folder;
  folder.put("rank-00000.json", "{\"version\"");
  const Outcome outcome = postmortem({folder.path()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("unreadable: cannot be read: rank-00000.json: "));
}

TEST(PostmortemCommand, ExitsWithTwoOnBadUsage) {
  const RecordFolder folder;
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {}, {folder.file("nothing")}, {folder.path()}, {folder.path(), "--jsno"}}) {
    const Outcome outcome = postmortem(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, testing::StartsWith("ration: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(postmortem({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace ration::test
