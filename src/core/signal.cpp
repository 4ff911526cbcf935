#include "core/signal.hpp"

#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ration {

void Signal::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void Signal::wake() {
  const int wake = between_processes_ ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE;
  syscall(SYS_futex, &generation_, wake, INT32_MAX, nullptr, nullptr, 0);
}

bool Signal::sleep(std::uint32_t seen, Deadline deadline) {
  const Deadline now = Clock::now();
  if (deadline <= now) return false;
  const auto left = deadline - now;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  const int wait = between_processes_ ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
  syscall(SYS_futex, &generation_, wait, seen, &timeout, nullptr, 0);
  return true;
}

}  // namespace ration
