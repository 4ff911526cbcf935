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
  syscall(SYS_futex, &generation_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

bool Signal::sleep(std::uint32_t seen, Deadline deadline) {
  const auto left = deadline - Clock::now();
  if (left <= Clock::duration::zero()) return false;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, &generation_, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  return true;
}

}  // namespace ration
