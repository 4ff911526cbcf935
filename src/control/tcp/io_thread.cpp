#include "control/tcp/io_thread.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

#include "core/log.hpp"

namespace ration::tcp {

void IoThread::start(int rank, std::function<void(const Failure&)> failed) {
  // Signals are for the threads of the program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, rank, failed = std::move(failed)] {
    log::set_thread_rank(rank);
    for (;;) {
      try {
        context_.run();
        return;
      } catch (...) {
        failed(Failure::current());
      }
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void IoThread::stop() {
  if (!thread_.joinable()) return;
  context_.stop();
  thread_.join();
}

}  // namespace ration::tcp
