#include "comm/gloo/loop_call.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <ration/error.hpp>

#include "core/signal.hpp"

namespace ration {
namespace {

class Call final : public gloo::transport::tcp::Handler {
 public:
  explicit Call(const std::function<void()>& function) : function_(function) {}

  // Comes again and again until the descriptor is taken back.
  void handleEvents(int) override {  // NOLINT(readability-identifier-naming): gloo's name
    if (ran_.load(std::memory_order_relaxed)) return;
    function_();
    ran_.store(true, std::memory_order_release);
    signal_.notify();
  }

  void await() {
    signal_.wait([&] { return ran_.load(std::memory_order_acquire); }, Deadline::max());
  }

 private:
  const std::function<void()>& function_;
  std::atomic<bool> ran_{false};
  Signal signal_;
};

}  // namespace

void on_loop(gloo::transport::tcp::Device& device, const std::function<void()>& function) {
  const int fd = eventfd(1, EFD_CLOEXEC);  // readable from the start
  if (fd < 0) throw IoError(fmt::format("eventfd: {}", std::strerror(errno)));
  Call call(function);
  device.registerDescriptor(fd, EPOLLIN, &call);
  call.await();
  device.unregisterDescriptor(fd, &call);  // returns when the thread has left the handler
  close(fd);
}

}  // namespace ration
