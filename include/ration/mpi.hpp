#pragma once
// For trainers that use MPI themselves: their communicator becomes a process group. Needs a library
// built with MPI (`ration --version` says so). Not included by ration.hpp.

#include <mpi.h>

#include <ration/process_group.hpp>

namespace ration::mpi {

namespace inside {
/// `fortran_handle`: of MPI_Comm_c2f.
ProcessGroup adopt(int fortran_handle);
}  // namespace inside

/// Collective over `communicator`, of which a copy is used: it may be freed. MPI must have begun
/// with MPI_THREAD_MULTIPLE, because the library calls it from a thread of its own; otherwise, and
/// without MPI in the library, throws InvalidArgument. The group ends, collectively, with its last
/// copy and what was made of it (optimizers, parts), before MPI_Finalize. A trainer that catches an
/// exception and gives up says so to the other ranks by `ProcessGroup::abort`.
inline ProcessGroup adopt(MPI_Comm communicator) {
  return inside::adopt(static_cast<int>(MPI_Comm_c2f(communicator)));
}

}  // namespace ration::mpi
