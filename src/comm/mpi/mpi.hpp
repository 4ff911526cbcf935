#pragma once
// Messages by MPI. The only part that calls it; MPI's own types stay out of this header.

#include <cstddef>
#include <memory>

#include "comm/messages.hpp"
#include "control/control.hpp"

namespace ration {

/// This process's place in MPI, with a communicator of our own. MPI calls from here are made by one
/// thread at a time: by its user's until `make_mpi`, then by a thread of ours until `finish`.
class MpiSession {
 public:
  virtual ~MpiSession() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Gives every rank `root`'s bytes. Collective; only before `make_mpi`. Throws Timeout,
  /// CommunicationError.
  virtual void broadcast(Bytes& bytes, int root) = 0;

  /// After a failure, any thread, any time: MPI is not called any more, not even to end it. When it
  /// returns, no message's memory is touched any more by this process; messages that are not done
  /// throw ConnectionLost. mpirun takes the missing end for the failure that it is.
  virtual void give_up() = 0;

  /// The orderly end, by the thread that opened it: when no message is in flight. Collective: frees
  /// the communicator and ends MPI, where it was begun here. Does nothing after `give_up`.
  virtual void finish() = 0;
};

/// False: what follows throws InvalidArgument, "built without MPI".
bool has_mpi();

/// Of MPI_COMM_WORLD. Begins MPI, where nobody has. Throws InvalidArgument where MPI cannot be
/// called from our thread: whoever begins it must ask for MPI_THREAD_MULTIPLE.
std::shared_ptr<MpiSession> open_mpi_session();

/// Of the communicator whose `MPI_Comm_c2f` is given: that is an int, whatever an MPI_Comm is. A
/// copy is used; it may be freed. Collective over it. MPI must have begun, with
/// MPI_THREAD_MULTIPLE; otherwise throws InvalidArgument.
std::shared_ptr<MpiSession> adopt_mpi_session(int fortran_handle);

/// In pieces of which size messages travel. MPI counts in int; and by a piece that has arrived our
/// thread sees that data moves, and stays awake (without, a copy through shared memory is ten times
/// slower; smaller pieces are slower where one process reads the other's memory).
constexpr std::size_t kMpiPiece = std::size_t{1} << 20;

/// Once per session. The Messages keep it alive. A send that is destroyed unfinished and that the
/// peer does not take soon ends in `give_up`: MPI cannot take it back.
std::shared_ptr<Messages> make_mpi(std::shared_ptr<MpiSession> session,
                                   std::size_t piece = kMpiPiece);

}  // namespace ration
