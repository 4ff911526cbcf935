#pragma once
// The session as the inside sees it.

#include <atomic>
#include <memory>
#include <mutex>

#include <mpi.h>

#include "comm/mpi/mpi.hpp"
#include "comm/mpi/progress.hpp"

namespace ration {

class Session final : public MpiSession {
 public:
  /// Copies `parent`; `began` says that MPI was begun here, and so is to be ended.
  Session(MPI_Comm parent, bool began);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void broadcast(Bytes& bytes, int root) override;
  void give_up() override;
  void finish() override;

  /// Starts the thread that makes MPI's calls from now on.
  Progress& start(std::size_t piece);

 private:
  /// Waits for a collective of all ranks. Throws Timeout, CommunicationError.
  void complete(MPI_Request& request, const char* what) const;

  const bool began_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::mutex mutex_;
  std::unique_ptr<Progress> progress_;
  bool ended_ = false;
  std::atomic<bool> given_up_{false};
};

}  // namespace ration
