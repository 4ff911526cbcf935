#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "comm/gloo/gloo.hpp"
#include "control/in_process/in_process.hpp"

namespace ration::test {
namespace {

TEST(NoGloo, SaysHowToHaveIt) {
  const auto controls = make_in_process_controls(1);
  try {
    make_gloo(*controls[0]);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("-DRATION_GLOO=ON"));
  }
}

}  // namespace
}  // namespace ration::test
