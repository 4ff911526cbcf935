#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <mpi.h>

#include "bench/peers.hpp"
#include "comm/mpi/error.hpp"

namespace ration::tools {
namespace {

/// MPI's blocking calls have no deadline: ends the process when one lasts too long.
class Watchdog {
 public:
  explicit Watchdog(int rank)
      : timeout_(operation_timeout()), rank_(rank), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void begin() { deadline_.store((Clock::now() + timeout_).time_since_epoch().count()); }
  void end() { deadline_.store(kNone); }

 private:
  static constexpr Clock::rep kNone = 0;

  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::seconds(1), [this] { return ended_; })) {
      const Clock::rep deadline = deadline_.load();
      if (deadline == kNone || Clock::now().time_since_epoch().count() < deadline) continue;
      const std::string line = fmt::format(
          "ration: rank {}: bench: MPI's own collective timed out after {:.1f} s; RATION_TIMEOUT "
          "sets how long it may take\n",
          rank_, std::chrono::duration<double>(timeout_).count());
      std::fputs(line.c_str(), stderr);
      std::_Exit(1);
    }
  }

  const std::chrono::milliseconds timeout_;
  const int rank_;
  std::atomic<Clock::rep> deadline_{kNone};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

/// Over MPI_COMM_WORLD, of which the library has a copy: the two never meet.
class MpiPeer final : public Peer {
 public:
  MpiPeer(int rank, int ranks) : ranks_(static_cast<std::size_t>(ranks)), watchdog_(rank) {}

  [[nodiscard]] std::string_view name() const override { return "MPI"; }

  // MPI-3 counts in int.
  [[nodiscard]] bool can(const Work& work) const override {
    const bool whole = work.kind == OperationKind::all_reduce;
    return (whole ? work.count * ranks_ : work.count) <= INT_MAX;
  }

  const float* run(const Work& work) override {
    const int count = static_cast<int>(work.count);
    const int whole = static_cast<int>(work.count * ranks_);
    watchdog_.begin();
    switch (work.kind) {
      case OperationKind::reduce_scatter:
        check_mpi(MPI_Reduce_scatter_block(work.send, work.recv, count, MPI_FLOAT, MPI_SUM,
                                           MPI_COMM_WORLD),
                  "MPI_Reduce_scatter_block");
        break;
      case OperationKind::all_gather:
        check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, work.recv, count, MPI_FLOAT,
                                MPI_COMM_WORLD),
                  "MPI_Allgather");
        break;
      default:
        check_mpi(MPI_Allreduce(work.send, work.recv, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
                  "MPI_Allreduce");
    }
    watchdog_.end();
    return work.recv;
  }

 private:
  const std::size_t ranks_;
  Watchdog watchdog_;
};

}  // namespace

std::unique_ptr<Peer> make_mpi_peer(Control& control) {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun == 0 || ended != 0) return nullptr;
  int level = MPI_THREAD_SINGLE;
  int size = 0;
  MPI_Query_thread(&level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (level < MPI_THREAD_MULTIPLE || size != control.size()) return nullptr;
  return std::make_unique<MpiPeer>(control.rank(), control.size());
}

}  // namespace ration::tools
