#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include <sched.h>

#include "bench/peers.hpp"
#include "comm/threads/threads.hpp"
#include "core/log.hpp"

namespace ration::tools {
namespace {

/// mpirun binds a rank to a core, and all its threads would share that; a program of threads has
/// them all.
void use_all_cores() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all);  // of the ones this machine lets us have
}

/// Where the threads are not: nothing to do, which takes no time.
class Elsewhere final : public Peer {
 public:
  [[nodiscard]] std::string_view name() const override { return "threads"; }
  const float* run(const Work&) override { return nullptr; }
  double time(const Work&, int) override { return 0; }
};

class ThreadsPeer final : public Peer {
 public:
  ThreadsPeer(int ranks, std::size_t bytes)
      : bytes_(bytes), communicators_(make_threads(ranks)), meeting_(ranks + 1) {
    seconds_.resize(static_cast<std::size_t>(ranks));
    failures_.resize(seconds_.size());
    for (std::size_t i = 0; i < seconds_.size(); ++i)
      threads_.emplace_back([this, i] { serve(i); });
  }
  ~ThreadsPeer() override {
    repeats_ = 0;
    meeting_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadsPeer(const ThreadsPeer&) = delete;
  ThreadsPeer& operator=(const ThreadsPeer&) = delete;

  [[nodiscard]] std::string_view name() const override { return "threads"; }

  const float* run(const Work& work) override {
    time(work, 1);
    return nullptr;
  }

  double time(const Work& work, int repeats) override {
    work_ = work;
    repeats_ = repeats;
    meeting_.arrive_and_wait();  // they begin
    meeting_.arrive_and_wait();  // they are done, or have failed: their own waits have deadlines
    for (const std::exception_ptr& failure : failures_) {
      if (failure) std::rethrow_exception(failure);
    }
    return *std::max_element(seconds_.begin(), seconds_.end());
  }

 private:
  void serve(std::size_t rank) {
    log::set_thread_rank(static_cast<int>(rank));
    use_all_cores();
    Communicator& communicator = *communicators_[rank];
    const std::unique_ptr<Memory> send = communicator.allocate(bytes_);
    const std::unique_ptr<Memory> recv = communicator.allocate(bytes_);
    std::fill_n(reinterpret_cast<float*>(send->data()), bytes_ / sizeof(float), 1.0F);
    std::fill_n(reinterpret_cast<float*>(recv->data()), bytes_ / sizeof(float), 1.0F);
    const std::unique_ptr<Peer> own = make_own_peer(communicator);
    const std::unique_ptr<Stream> stream = communicator.make_stream("bench");
    for (;;) {
      meeting_.arrive_and_wait();
      if (repeats_ == 0) return;
      try {
        Work work = work_;
        work.send = reinterpret_cast<float*>(send->data());
        work.recv = reinterpret_cast<float*>(recv->data());
        communicator.submit(*stream, {.kind = OperationKind::barrier, .tag = "bench"});
        stream->synchronize();
        seconds_[rank] = own->time(work, repeats_);
      } catch (...) {
        failures_[rank] = std::current_exception();
        communicator.abort("bench: a thread failed");
      }
      meeting_.arrive_and_wait();
    }
  }

  const std::size_t bytes_;
  const std::vector<std::shared_ptr<Communicator>> communicators_;
  std::barrier<> meeting_;
  Work work_;
  int repeats_ = 0;
  std::vector<double> seconds_;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Peer> make_threads_peer(int rank, int ranks, std::size_t bytes) {
  if (rank != 0) return std::make_unique<Elsewhere>();
  return std::make_unique<ThreadsPeer>(ranks, bytes);
}

}  // namespace ration::tools
