// The hub alone: what it says to members that keep the rules, and to those that do not.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/bytes.hpp"
#include "control/tcp/hub.hpp"

namespace ration::tcp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HubRules : public testing::Test, protected Outlet {
 protected:
  void combine(int leader, Combine&& combine) override {
    combined_ += fmt::format("{}:", leader);
    for (const Bytes& record : combine.records) combined_ += text_of(record);
  }
  void result(std::span<const int> members, Result&& result) override {
    told_.assign(members.begin(), members.end());
    result_ = text_of(result.bytes);
  }

  Record record(int member, std::uint64_t number = 0, const std::string& text = "x") {
    Record record;
    record.key.group = 9;
    record.key.channel = "step";
    record.key.number = number;
    record.leader = 4;
    record.member = member;
    record.size = 3;
    record.what = "a step";
    record.bytes = bytes_of(text);
    return record;
  }
  Result result(std::uint64_t number = 0) {
    Result result;
    result.key = record(0, number).key;
    result.bytes = bytes_of("r");
    return result;
  }
  static std::string text(const Hub::Verdict& verdict) { return verdict ? verdict->text : ""; }

  // Ranks 4, 1 and 2 of 5.
  Hub hub_{5, *this};
  std::string combined_;
  std::vector<int> told_;
  std::string result_;
};

TEST_F(HubRules, RecordsMayComeInAnyOrderAndBeforeTheGroupIsOpened) {
  EXPECT_EQ(text(hub_.record(2, record(2, 0, "c"))), "");
  EXPECT_EQ(text(hub_.open(4, {9, {4, 1, 2}})), "");
  EXPECT_EQ(text(hub_.record(4, record(0, 0, "a"))), "");
  EXPECT_EQ(combined_, "");
  EXPECT_EQ(text(hub_.record(1, record(1, 0, "b"))), "");
  EXPECT_EQ(combined_, "4:abc");
  EXPECT_EQ(text(hub_.result(4, result())), "");
  EXPECT_THAT(told_, ElementsAre(1, 2));
  EXPECT_EQ(result_, "r");
  EXPECT_EQ(text(hub_.record(2, record(2, 1))), "");
}

TEST_F(HubRules, MembersThatBreakThemEndTheJob) {
  EXPECT_EQ(text(hub_.open(4, {9, {4, 1, 2}})), "");
  EXPECT_THAT(text(hub_.open(4, {9, {4, 1, 2}})), HasSubstr("rank 4 opens group 9"));
  EXPECT_THAT(text(hub_.open(1, {8, {4, 1}})), HasSubstr("rank 1 opens group 8"));
  EXPECT_THAT(text(hub_.open(1, {8, {1, 5}})), HasSubstr("rank 1 opens group 8"));
  EXPECT_THAT(text(hub_.open(1, {8, {}})), HasSubstr("rank 1 opens group 8"));
  EXPECT_EQ(text(hub_.record(1, record(1))), "");
  EXPECT_THAT(text(hub_.record(1, record(1))), HasSubstr("rank 1 comes to a step (step #0)"));
  EXPECT_THAT(text(hub_.record(2, record(2, 1))), HasSubstr("rank 2 comes to a step (step #1)"));
  EXPECT_THAT(text(hub_.record(3, record(2))), HasSubstr("with another group"));
  Record other = record(2);
  other.size = 2;
  EXPECT_THAT(text(hub_.record(2, std::move(other))), HasSubstr("no member 2 of 2"));
  other = record(1);
  other.size = 2;
  EXPECT_THAT(text(hub_.record(1, std::move(other))), HasSubstr("with another group"));
  other = record(2);
  other.leader = 7;
  EXPECT_NE(text(hub_.record(2, std::move(other))), "");
  EXPECT_THAT(text(hub_.result(4, result())), HasSubstr("which is not due"));
  EXPECT_THAT(text(hub_.result(1, result())), HasSubstr("which is not due"));
  EXPECT_NE(text(hub_.leave(1, {9, 4, 3, 3})), "");
}

TEST_F(HubRules, ALateFoldIsNamedByWhoIsMissing) {
  const auto late = [&](int member) {
    Late late;
    late.key = record(0).key;
    late.member = member;
    late.what = "a step";
    late.seconds = 5;
    late.names = {4, 1, 2};
    return late;
  };
  const auto remark = [](int name) { return name == 2 ? std::string(" (?)") : std::string(); };
  EXPECT_EQ(text(hub_.record(1, record(1))), "");
  EXPECT_EQ(text(hub_.late(1, late(1), remark)),
            "rank 1: a step (step #0): timed out after 5.0 s waiting for ranks 4, 2 (?)");
  EXPECT_EQ(text(hub_.record(2, record(2))), "");
  EXPECT_EQ(text(hub_.late(1, late(1), remark)),
            "rank 1: a step (step #0): timed out after 5.0 s waiting for rank 4");
  EXPECT_EQ(text(hub_.open(4, {9, {4, 1, 2}})), "");
  EXPECT_EQ(text(hub_.record(4, record(0))), "");
  EXPECT_EQ(text(hub_.late(1, late(1), remark)), "");  // it is being combined
}

TEST_F(HubRules, ALeaderThatDepartsBeforeItHasCombinedLeavesTheOthersInVain) {
  EXPECT_EQ(text(hub_.open(4, {9, {4, 1, 2}})), "");
  for (const int member : {0, 1, 2}) {
    EXPECT_EQ(text(hub_.record(member == 0 ? 4 : member, record(member))), "");
  }
  EXPECT_EQ(text(hub_.depart(1)), "");
  EXPECT_THAT(text(hub_.depart(4)), HasSubstr("rank 4 has ended without it"));
}

TEST_F(HubRules, ADepartedMemberIsNamedAsSoonAsTheGroupIsKnown) {
  EXPECT_EQ(text(hub_.depart(2)), "");
  EXPECT_EQ(text(hub_.record(1, record(1))), "");
  EXPECT_EQ(text(hub_.open(4, {9, {4, 1, 2}})),
            "rank 1: a step (step #0): rank 2 has ended without it; every rank must make the same "
            "calls");
}

TEST_F(HubRules, AGroupIsForgottenWhenAllHaveLeftIt) {
  EXPECT_EQ(text(hub_.open(4, {9, {4, 1, 2}})), "");
  for (const int member : {0, 1, 2}) {
    EXPECT_EQ(hub_.groups(), 1U);
    EXPECT_EQ(text(hub_.leave(member == 0 ? 4 : member, {9, 4, member, 3})), "");
  }
  EXPECT_EQ(hub_.groups(), 0U);
}

}  // namespace
}  // namespace ration::tcp
