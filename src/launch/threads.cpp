// Ranks as threads of this process.

#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/threads/threads.hpp"
#include "core/log.hpp"
#include "launch/run.hpp"

namespace ration::launching {
namespace {

// The first failure of a job: its text is what is printed, and what the other ranks are told. A
// rank that only heard of another's failure may report before that one does; the cause is what is
// printed all the same.
class FirstFailure {
 public:
  void report(const ProcessGroup& group, int rank, const Failure& failure) {
    const std::lock_guard lock(mutex_);
    std::string& kept = failure.kind == Failure::Kind::remote_error ? heard_ : cause_;
    if (kept.empty()) kept = one_line(rank, failure.text);
    group.abort(kept);
  }
  [[nodiscard]] const std::string& text() const { return cause_.empty() ? heard_ : cause_; }

 private:
  std::mutex mutex_;
  std::string cause_;
  std::string heard_;
};

}  // namespace

int run_threads(int ranks, const Body& body, const std::shared_ptr<World::StopState>& stop) {
  const std::vector<std::shared_ptr<Communicator>> communicators = make_threads(ranks);
  FirstFailure failure;
  const auto run = [&](int rank) {
    log::set_thread_rank(rank);
    World world(ProcessGroup(communicators[static_cast<std::size_t>(rank)]), stop);
    try {
      body(world);
      world.communicator()->depart();
    } catch (...) {
      failure.report(world, rank, Failure::current());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure.text().empty()) return 0;
  std::fputs(fmt::format("ration: {}\n", failure.text()).c_str(), stderr);
  return 1;
}

}  // namespace ration::launching
