// The files: how they are written, and what is made of those that are not what they should be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ration/log.hpp>

#include "failed_job.hpp"
#include "postmortem/diagnosis.hpp"

namespace ration::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tools::PastJob;

std::shared_ptr<Recording> some_recording() {
  const auto made = make_recording(make_threads(1)[0]);
  const auto stream = made.communicator->make_stream("test", 64);
  all_reduce(*made.communicator, *stream, "x");
  return made.recording;
}

TEST(Record, IsOneJsonFilePerRank) {
  const RecordFolder folder;
  const std::string path =
      write_postmortem(*some_recording(), 3, 8, "rank 3: boom \xff \"quoted\"", "1f2e");
  EXPECT_EQ(path, folder.file("rank-00003.json"));
  const auto json = nlohmann::json::parse(folder.text("rank-00003.json"));
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("rank"), 3);
  EXPECT_EQ(json.at("world"), 8);
  EXPECT_EQ(json.at("job"), "1f2e");
  EXPECT_EQ(json.at("pid"), getpid());
  EXPECT_FALSE(json.at("host").get<std::string>().empty());
  EXPECT_THAT(json.at("error").get<std::string>(), HasSubstr("boom"));
  EXPECT_LE(json.at("began").get<std::string>(), json.at("time").get<std::string>());
  ASSERT_EQ(json.at("operations").size(), 1u);
  const auto& operation = json.at("operations")[0];
  EXPECT_EQ(operation.at("group"), "world");
  EXPECT_EQ(operation.at("sequence"), 0);
  EXPECT_EQ(operation.at("kind"), "all_reduce");
  EXPECT_EQ(operation.at("type"), "f64");
  EXPECT_EQ(operation.at("count"), 1);
  EXPECT_EQ(operation.at("tag"), "x");
  EXPECT_EQ(operation.at("state"), "done");
  EXPECT_EQ(operation.at("history").get<std::string>().size(), 16u);
  EXPECT_EQ(json.at("groups")[0].at("name"), "world");
}

TEST(Record, MakesItsFolderReplacesTheFormerAndLeavesNothingElse) {
  const RecordFolder folder;
  const std::string deep = folder.path() / "a" / "b";
  setenv("RATION_POSTMORTEM_DIR", deep.c_str(), 1);
  write_postmortem(*some_recording(), 0, 1, "first");
  EXPECT_EQ(write_postmortem(*some_recording(), 0, 1, "second"), deep + "/rank-00000.json");
  EXPECT_THAT(folder.text("a/b/rank-00000.json"), HasSubstr("second"));
  const std::filesystem::directory_iterator files(deep);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(Record, GoesBelowTheCurrentFolderByDefault) {
  for (const char* value : {"", static_cast<const char*>(nullptr)}) {
    value ? setenv("RATION_POSTMORTEM_DIR", value, 1) : unsetenv("RATION_POSTMORTEM_DIR");
    EXPECT_EQ(postmortem_directory(), "ration-postmortem");
  }
  unsetenv("RATION_POSTMORTEM_DIR");
}

TEST(Record, ThatCannotBeWrittenIsAWarning) {
  const RecordFolder folder;
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, int, std::string_view line) { lines.emplace_back(line); });
  folder.put("file", "");
  setenv("RATION_POSTMORTEM_DIR", folder.file("file").c_str(), 1);
  EXPECT_EQ(write_postmortem(*some_recording(), 2, 4, "boom"), "");
  std::filesystem::create_directories(folder.path() / "taken" / "rank-00002.json" / "x");
  setenv("RATION_POSTMORTEM_DIR", folder.file("taken").c_str(), 1);
  EXPECT_EQ(write_postmortem(*some_recording(), 2, 4, "boom"), "");
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, HasSubstr("rank 2: no record of its last operations was written: "));
  }
  const std::filesystem::directory_iterator files(folder.path() / "taken");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // no unfinished one
}

// Broken in every way; the good one beside them is read all the same.
TEST(Records, ThatCannotBeReadAreNamed) {
  const RecordFolder folder;
  write_postmortem(*some_recording(), 0, 2, "");
  const std::string good = folder.text("rank-00000.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return text.replace(place, from.size(), to);
  };
  const std::map<std::string, std::string> broken{
      {"rank-00001.json", good.substr(0, good.size() / 2)},
      {"rank-00002.json", ""},
      {"rank-00003.json", "[1, 2]"},
      {"rank-00004.json", with("\"version\":1", "\"version\":2")},
      {"rank-00005.json", with("\"rank\":0,\"time\"", "\"rank\":-1,\"time\"")},
      {"rank-00006.json", with("\"world\":2", "\"world\":2000000000")},
      {"rank-00007.json", with("\"sequence\":0", "\"sequence\":\"x\"")},
      {"rank-00008.json", with("\"time\":\"2", "\"time\":\"x2")},
      {"rank-00009.json", good}};
  for (const auto& [name, text] : broken) folder.put(name, text);
  const PastJob job = tools::read_job(folder.path());
  ASSERT_EQ(job.ranks.size(), 1u);
  EXPECT_THAT(job.missing, ElementsAre(1));
  ASSERT_EQ(job.unreadable.size(), broken.size());
  for (const auto& [name, text] : broken) {
    EXPECT_THAT(job.unreadable, testing::Contains(testing::StartsWith(name + ": ")));
  }
  const auto findings = tools::diagnose(job).findings;
  EXPECT_EQ(findings.back().kind, tools::Finding::Kind::unreadable);
}

TEST(Records, OfAnotherJobAreLeftOut) {
  const RecordFolder folder;
  const auto recording = some_recording();
  write_postmortem(*recording, 5, 8, "old");
  write_postmortem(*recording, 1, 4, "old", "another");
  write_postmortem(*recording, 0, 4, "", "this");
  write_postmortem(*recording, 2, 4, "", "this");
  const PastJob job = tools::read_job(folder.path());
  EXPECT_EQ(job.world, 4);
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[1].rank, 2);
  EXPECT_THAT(job.missing, ElementsAre(1, 3));
  EXPECT_THAT(job.foreign, ElementsAre("rank-00001.json", "rank-00005.json"));
}

TEST(Records, OfAnEarlierStartAreLeftOut) {
  const RecordFolder folder;
  write_postmortem(*some_recording(), 0, 2, "old");
  std::string text = folder.text("rank-00000.json");
  for (const std::string name : {"\"began\":\"", "\"time\":\""}) {
    text.replace(text.find(name) + name.size(), 4, "2001");
  }
  folder.put("rank-00000.json", text);
  write_postmortem(*some_recording(), 1, 2, "");
  const PastJob job = tools::read_job(folder.path());
  EXPECT_THAT(job.foreign, ElementsAre("rank-00000.json"));
  EXPECT_THAT(job.missing, ElementsAre(0));
}

TEST(Records, FromNoFolderAreBadUsage) {
  const RecordFolder folder;
  EXPECT_THROW(tools::read_job(folder.file("nothing")), InvalidArgument);
  EXPECT_THROW(tools::read_job(folder.path()), InvalidArgument);  // no such file in it
}

}  // namespace
}  // namespace ration::test
