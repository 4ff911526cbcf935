#include "comm/gloo/loop_call.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <ration/error.hpp>

namespace ration {

void LoopCall::run(gloo::transport::tcp::Device& device, std::function<void()> function) {
  function_ = std::move(function);
  const int fd = eventfd(1, EFD_CLOEXEC);  // readable from the start
  if (fd < 0) throw IoError(fmt::format("eventfd: {}", std::strerror(errno)));
  device.registerDescriptor(fd, EPOLLIN, this);
  constexpr std::chrono::minutes kLongest(10);  // that thread may first finish a large message
  signal_.wait([this] { return ran_.load(std::memory_order_acquire); }, Clock::now() + kLongest);
  device.unregisterDescriptor(fd, this);
  close(fd);
}

// Comes again and again until the descriptor is taken back.
void LoopCall::handleEvents(int) {  // NOLINT(readability-identifier-naming)
  if (ran_.load(std::memory_order_relaxed)) return;
  function_();
  ran_.store(true, std::memory_order_release);
  signal_.notify();
}

}  // namespace ration
