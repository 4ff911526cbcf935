// Which kernels are chosen. Asked once per process, so each question goes to a new one.

#include <gtest/gtest.h>

#include <cstdlib>
#include <ration/error.hpp>
#include <string>

#include "device/host/arithmetic.hpp"
#include "device/host/instruction_set.hpp"
#include "update/update.hpp"

namespace ration {
namespace {

[[noreturn]] void exit_if_chosen(const char* cap, const std::string& expected) {
  setenv("RATION_ISA", cap, 1);
  const bool chosen = arithmetic().name == expected && update::levels().back() == expected;
  std::_Exit(chosen ? 0 : 1);
}

[[noreturn]] void exit_if_refused(const char* cap, const std::string& text) {
  setenv("RATION_ISA", cap, 1);
  try {
    arithmetic();
  } catch (const InvalidArgument& error) {
    std::_Exit(error.what() == text ? 0 : 1);
  }
  std::_Exit(1);
}

class InstructionSet : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(InstructionSet, IsLoweredByTheEnvironment) {
  EXPECT_EXIT(exit_if_chosen("baseline", "baseline"), ::testing::ExitedWithCode(0), "");
}

TEST_F(InstructionSet, IsNeverRaisedBeyondTheCpu) {
  EXPECT_EXIT(exit_if_chosen("x86-64-v4", arithmetic_levels().back()->name),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(InstructionSet, OfAnUnknownNameIsRefused) {
  EXPECT_EXIT(
      exit_if_refused("avx2", "RATION_ISA is \"avx2\"; it may be baseline, x86-64-v3 or x86-64-v4"),
      ::testing::ExitedWithCode(0), "");
}

TEST_F(InstructionSet, LevelsAreNamedAlikeEverywhere) {
  ASSERT_EQ(arithmetic_levels().size(), update::levels().size());
  for (std::size_t i = 0; i < update::levels().size(); ++i) {
    EXPECT_STREQ(arithmetic_levels()[i]->name, update::levels()[i]);
  }
  EXPECT_EQ(&arithmetic(), arithmetic_levels().back());
}

}  // namespace
}  // namespace ration
