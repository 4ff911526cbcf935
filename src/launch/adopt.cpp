// A trainer's own MPI communicator as a process group.

#include <exception>
#include <memory>

#include <ration/process_group.hpp>

#include "launch/join.hpp"

namespace ration::mpi::inside {
namespace {

// Leaves with the last handle.
struct Adopted {
  explicit Adopted(std::shared_ptr<MpiSession> session) : joined(std::move(session)) {}
  ~Adopted() {
    if (std::uncaught_exceptions() > 0 || joined.alarm()->raised()) return;
    try {
      joined.leave();
    } catch (...) {
      // The others have failed or are late: their end says so.
    }
  }
  Joined joined;
};

}  // namespace

ProcessGroup adopt(int fortran_handle);
ProcessGroup adopt(int fortran_handle) {
  const auto adopted = std::make_shared<Adopted>(adopt_mpi_session(fortran_handle));
  return ProcessGroup(std::shared_ptr<Communicator>(adopted, adopted->joined.communicator().get()));
}

}  // namespace ration::mpi::inside
