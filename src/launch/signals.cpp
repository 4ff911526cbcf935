#include "launch/signals.hpp"

#include <atomic>
#include <csignal>
#include <iterator>

#include <unistd.h>

namespace ration::launch_signals {
namespace {

std::atomic<int> count{0};
std::atomic<bool> told{false};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
struct sigaction former[std::size(kSignals)];

extern "C" void on_signal(int signal) {
  told.store(true);
  if (signal != SIGUSR1 && count.fetch_add(1) > 0) _exit(128 + signal);
}

}  // namespace

bool arrived() {
  return told.load(std::memory_order_relaxed);
}

Handling::Handling(bool wanted) : wanted_(wanted) {
  count.store(0);
  told.store(false);
  if (!wanted_) return;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &former[i]);
}

Handling::~Handling() {
  if (!wanted_) return;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &former[i], nullptr);
}

}  // namespace ration::launch_signals
