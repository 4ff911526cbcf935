#include <ration/error.hpp>

#include "comm/mpi/mpi.hpp"

namespace ration {
namespace {

[[noreturn]] void refuse() {
  throw InvalidArgument(
      "built without MPI; configure with -DRATION_MPI=ON (Debian: libopenmpi-dev openmpi-bin)");
}

}  // namespace

bool has_mpi() {
  return false;
}
std::shared_ptr<MpiSession> open_mpi_session() {
  refuse();
}
std::shared_ptr<MpiSession> adopt_mpi_session(int) {
  refuse();
}
std::shared_ptr<Messages> make_mpi(std::shared_ptr<MpiSession>, std::size_t) {
  refuse();
}

}  // namespace ration
