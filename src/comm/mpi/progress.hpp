#pragma once
// The thread that makes all MPI calls once messages flow: a message proceeds while its ranks
// compute, and MPI need not be called by several threads at once.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "core/signal.hpp"

namespace ration {

/// A message as the thread and whoever waits for it see it.
struct Transfer {
  enum class Way { send, receive };
  enum class State { moving, done, failed };

  Transfer(Way the_way, int the_peer, int the_tag, std::byte* the_data, std::size_t the_bytes)
      : way(the_way), peer(the_peer), tag(the_tag), data(the_data), bytes(the_bytes) {}

  const Way way;
  const int peer;
  const int tag;
  std::byte* const data;
  const std::size_t bytes;

  std::atomic<State> state{State::moving};
  std::atomic<bool> held{true};  // MPI may still touch the memory
  std::atomic<bool> unwanted{false};
  Signal signal;
  std::string error;       // written before `state` says failed
  bool connection = true;  // whether the error means that the peer is lost

  // The thread's own.
  std::size_t requests = 0;
  bool cancelled = false;
};

class Progress {
 public:
  /// `comm` is used by this thread alone until it has ended. Messages are cut into pieces of
  /// `piece` bytes.
  Progress(MPI_Comm comm, int rank, std::size_t piece);
  /// Ends like `give_up`, unless `stop` was called.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void post(std::shared_ptr<Transfer> transfer);

  /// Takes back what can be, and waits a while for the rest; at last gives up everything.
  void withdraw(const std::shared_ptr<Transfer>& transfer);

  /// Ends the thread when nothing is in flight any more: true. Gives up at the deadline: false.
  bool stop(Deadline deadline);

  /// Ends the thread at once: every transfer fails, and none is held any more.
  void give_up();

 private:
  void run();
  void start(const std::shared_ptr<Transfer>& transfer);
  void cancel_unwanted();
  bool test();
  void complete(std::size_t request, const MPI_Status& status);
  void fail(Transfer& transfer, std::string error, bool connection);
  void fail_all();
  [[nodiscard]] bool wanted() const {
    return news_.load(std::memory_order_acquire) || give_up_.load(std::memory_order_acquire);
  }

  /// One piece of a transfer.
  struct Piece {
    std::shared_ptr<Transfer> transfer;
    int bytes;
  };

  const MPI_Comm comm_;
  const int rank_;
  const std::size_t piece_;

  std::mutex mutex_;
  std::vector<std::shared_ptr<Transfer>> posted_;
  bool ended_ = false;             // nothing can be posted any more
  std::atomic<bool> news_{false};  // something was posted, withdrawn, or is to stop
  std::atomic<bool> stop_{false};
  std::atomic<bool> give_up_{false};
  std::atomic<bool> gone_{false};  // the thread makes no call any more
  Signal wake_;
  Signal left_;

  // The thread's own.
  std::vector<std::shared_ptr<Transfer>> starting_;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;  // of the requests
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;

  std::thread thread_;
};

}  // namespace ration
