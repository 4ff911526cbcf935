#pragma once
// The star's thread: runs what asio has to do, until it is told to stop.

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <thread>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include "core/failure.hpp"

namespace ration::tcp {

class IoThread {
 public:
  IoThread() : work_(context_.get_executor()) {}
  ~IoThread() { stop(); }
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  [[nodiscard]] asio::io_context& context() { return context_; }
  /// Where every connection reads to; what is there is used up before the next one reads.
  [[nodiscard]] std::span<std::byte> scratch() { return scratch_; }

  /// `failed` is told what a handler throws; then the thread goes on.
  void start(int rank, std::function<void(const Failure&)> failed);
  void stop();

 private:
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::array<std::byte, std::size_t{64} * 1024> scratch_{};
  std::thread thread_;
};

}  // namespace ration::tcp
