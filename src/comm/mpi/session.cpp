#include "comm/mpi/session.hpp"

#include <climits>
#include <cstdint>
#include <thread>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/mpi/error.hpp"
#include "core/timeout.hpp"

namespace ration {
namespace {

std::string_view level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

bool mpi_has_begun() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (ended != 0) {
    throw InvalidArgument(
        "MPI has been finalized and cannot be begun again; use ration before MPI_Finalize");
  }
  return begun != 0;
}

/// A trainer that has begun MPI may call it at any time, beside our thread.
void check_thread_level() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_MULTIPLE) return;
  throw InvalidArgument(fmt::format(
      "MPI was begun with {}, but ration calls it from a thread of its own; begin it by "
      "MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), or leave it to ration",
      level_name(level)));
}

void begin_mpi() {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  if (level >= MPI_THREAD_SERIALIZED) return;
  throw InvalidArgument(
      fmt::format("this MPI offers no more than {}; ration needs MPI_THREAD_SERIALIZED, so an MPI "
                  "that was built with threads",
                  level_name(level)));
}

}  // namespace

Session::Session(MPI_Comm parent, bool began) : began_(began) {
  MPI_Comm_rank(parent, &rank_);
  MPI_Comm_size(parent, &size_);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(parent, &comm_, &request), "MPI_Comm_idup");
  complete(request, "opening the communicator");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  void* value = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &known);
  const int most = known != 0 ? *static_cast<int*>(value) : 32767;  // what MPI guarantees
  if (most < static_cast<int>(Messages::kTags) - 1) {
    throw InvalidArgument(fmt::format("this MPI has tags up to {}; ration needs them up to {}",
                                      most, Messages::kTags - 1));
  }
}

Session::~Session() {
  give_up();
}

void Session::complete(MPI_Request& request, const char* what) const {
  const auto timeout = operation_timeout();
  const Deadline deadline = Clock::now() + timeout;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done != 0) return;
    if (given_up_.load(std::memory_order_acquire))
      throw CommunicationError(fmt::format("rank {}: MPI, {}: given up", rank_, what));
    if (Clock::now() >= deadline) {
      throw Timeout(fmt::format(
          "rank {}: MPI, {}: timed out after {:.1f} s; every rank must make the same calls", rank_,
          what, std::chrono::duration<double>(timeout).count()));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Session::broadcast(Bytes& bytes, int root) {
  {
    const std::lock_guard lock(mutex_);
    if (progress_ || ended_) throw InvalidArgument("MpiSession::broadcast: only before make_mpi");
  }
  std::uint64_t size = bytes.size();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(&size, 1, MPI_UINT64_T, root, comm_, &request), "MPI_Ibcast");
  complete(request, "broadcast");
  if (size > INT_MAX)
    throw InvalidArgument(fmt::format("broadcast of {} bytes; at most {}", size, INT_MAX));
  bytes.resize(size);
  check_mpi(MPI_Ibcast(bytes.data(), static_cast<int>(size), MPI_BYTE, root, comm_, &request),
            "MPI_Ibcast");
  complete(request, "broadcast");
}

Progress& Session::start(std::size_t piece) {
  const std::lock_guard lock(mutex_);
  if (progress_ || ended_)
    throw InvalidArgument("make_mpi: once per session, and before it has ended");
  progress_ = std::make_unique<Progress>(comm_, rank_, piece);
  return *progress_;
}

void Session::give_up() {
  Progress* progress = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    progress = progress_.get();
  }
  given_up_.store(true, std::memory_order_release);
  if (progress) progress->give_up();
}

void Session::finish() {
  Progress* progress = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    progress = progress_.get();
  }
  if (progress && !progress->stop(Clock::now() + operation_timeout())) return;
  // MPI_Finalize has no deadline; so all must have come before it is called.
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  complete(request, "the end of the job");
  MPI_Comm_free(&comm_);
  if (began_) check_mpi(MPI_Finalize(), "MPI_Finalize");
}

bool has_mpi() {
  return true;
}

std::shared_ptr<MpiSession> open_mpi_session() {
  const bool begun = mpi_has_begun();
  if (begun) {
    check_thread_level();
  } else {
    begin_mpi();
  }
  return std::make_shared<Session>(MPI_COMM_WORLD, !begun);
}

std::shared_ptr<MpiSession> adopt_mpi_session(int fortran_handle) {
  if (!mpi_has_begun()) {
    throw InvalidArgument(
        "a communicator was given, but MPI has not begun; call MPI_Init_thread first");
  }
  check_thread_level();
  MPI_Comm comm = MPI_Comm_f2c(fortran_handle);
  int inter = 0;
  if (comm == MPI_COMM_NULL || MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter != 0)
    throw InvalidArgument("ration needs an intra-communicator of which this process is a rank");
  return std::make_shared<Session>(comm, false);
}

}  // namespace ration
