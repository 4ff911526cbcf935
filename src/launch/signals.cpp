#include "launch/signals.hpp"

#include <atomic>
#include <csignal>

#include <unistd.h>

namespace ration::launch_signals {
namespace {

std::atomic<int> count{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

constexpr int kSignals[] = {SIGINT, SIGTERM};
struct sigaction former[2];

extern "C" void on_signal(int signal) {
  if (count.fetch_add(1) > 0) _exit(128 + signal);
}

}  // namespace

bool arrived() {
  return count.load(std::memory_order_relaxed) > 0;
}

Handling::Handling(bool wanted) : wanted_(wanted) {
  count.store(0);
  if (!wanted_) return;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &former[i]);
}

Handling::~Handling() {
  if (!wanted_) return;
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &former[i], nullptr);
}

}  // namespace ration::launch_signals
