// The deadline as users write it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "core/timeout.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;

TEST(OperationTimeout, IsInSecondsAndMayBeAFraction) {
  EXPECT_EQ(parse_timeout("30"), 30s);
  EXPECT_EQ(parse_timeout("0.25"), 250ms);
  EXPECT_EQ(parse_timeout("1e-9"), 1ms);
}

TEST(OperationTimeout, RefusesWhatIsNoNumberOfSeconds) {
  for (const char* text : {"", "soon", "5 s", "-1", "0", "nan", "inf", "1e300"}) {
    try {
      parse_timeout(text);
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(std::string("RATION_TIMEOUT=\"") + text + "\""));
    }
  }
}

}  // namespace
}  // namespace ration
