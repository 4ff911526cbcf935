// Slurm's notations for where the tasks of a step are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "launch/hostlist.hpp"

namespace ration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> hosts(std::string_view list) {
  return expand_hostlist(list, "SLURM_STEP_NODELIST");
}

std::string refusal(std::string_view list) {
  try {
    hosts(list);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  ADD_FAILURE() << "\"" << list << "\" was accepted";
  return {};
}

TEST(Hostlist, IsNamesBetweenCommas) {
  EXPECT_THAT(hosts("n1"), ElementsAre("n1"));
  EXPECT_THAT(hosts("login,n1.cluster.org,gpu-02"),
              ElementsAre("login", "n1.cluster.org", "gpu-02"));
}

TEST(Hostlist, ExpandsRangesInOrder) {
  EXPECT_THAT(hosts("n[1-3,7],m05"), ElementsAre("n1", "n2", "n3", "n7", "m05"));
  EXPECT_THAT(hosts("n[3,1]"), ElementsAre("n3", "n1"));
  EXPECT_THAT(hosts("[4-5]"), ElementsAre("4", "5"));
}

TEST(Hostlist, KeepsTheZerosOfARangesFirstNumber) {
  EXPECT_THAT(hosts("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(hosts("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(hosts("n[001,2,98-101]"), ElementsAre("n001", "n2", "n98", "n99", "n100", "n101"));
}

TEST(Hostlist, CombinesSeveralBracketsTheLastFastest) {
  EXPECT_THAT(hosts("r[1-2]n[01-02]"), ElementsAre("r1n01", "r1n02", "r2n01", "r2n02"));
  EXPECT_THAT(hosts("r[1-2]n[1-2]-ib,x"),
              ElementsAre("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib", "x"));
}

TEST(Hostlist, ReadsThousandsOfHosts) {
  const auto all = hosts("rack[01-16]n[000-511]");
  ASSERT_EQ(all.size(), 16u * 512);
  EXPECT_EQ(all.front(), "rack01n000");
  EXPECT_EQ(all.back(), "rack16n511");
}

TEST(Hostlist, SaysWhereItGoesWrong) {
  EXPECT_EQ(refusal("n[1-"),
            "SLURM_STEP_NODELIST=\"n[1-\": expected a number at character 5, found the end");
  EXPECT_THAT(refusal("n[1-3"), HasSubstr("expected \"]\" at character 6, found the end"));
  EXPECT_THAT(refusal("n[1;3]"), HasSubstr("expected \"]\" at character 4, found \";\""));
  EXPECT_THAT(refusal("n[]"), HasSubstr("expected a number at character 3, found \"]\""));
  EXPECT_THAT(refusal("n[x-y]"), HasSubstr("expected a number at character 3, found \"x\""));
  EXPECT_THAT(refusal("n[000x111]"), HasSubstr("expected \"]\" at character 6, found \"x\""));
  EXPECT_THAT(refusal("n[3-1]"), HasSubstr("the range 3-1 runs backwards"));
  EXPECT_THAT(refusal("n1]"), HasSubstr("expected \",\" at character 3, found \"]\""));
  EXPECT_THAT(refusal("n1,,n2"), HasSubstr("expected a host's name at character 4"));
  EXPECT_THAT(refusal("n1,"), HasSubstr("expected a host's name at character 4, found the end"));
  EXPECT_THAT(refusal(""), HasSubstr("expected a host's name"));
}

TEST(Hostlist, IsNoBombs) {
  EXPECT_THAT(refusal("n[1-99999999999999999999999]"), HasSubstr("too large"));
  EXPECT_THAT(refusal("n[0-18446744073709551615]"), HasSubstr("too many hosts"));
  EXPECT_THAT(refusal("a[1-9999]b[1-9999]c[1-9999]"), HasSubstr("too many hosts"));
}

TEST(TasksPerNode, RepeatsCounts) {
  const auto tasks = [](const char* text) {
    return expand_tasks_per_node(text, "SLURM_STEP_TASKS_PER_NODE");
  };
  EXPECT_THAT(tasks("4"), ElementsAre(4));
  EXPECT_THAT(tasks("3,1"), ElementsAre(3, 1));
  EXPECT_THAT(tasks("4(x2),3"), ElementsAre(4, 4, 3));
  for (const char* text : {"", "x", "4(x", "4(2)", "4(x2", "4,", "4(x99999999)", "-1", "4(x2)3"}) {
    EXPECT_THROW(tasks(text), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace ration
