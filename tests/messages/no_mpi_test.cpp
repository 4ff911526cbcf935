#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "comm/mpi/mpi.hpp"

namespace ration::test {
namespace {

TEST(NoMpi, SaysHowToHaveIt) {
  try {
    open_mpi_session();
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("-DRATION_MPI=ON"));
  }
}

}  // namespace
}  // namespace ration::test
