#pragma once
// Control between two processes joined by a socket: as little as a test of messages needs.

#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include <sys/socket.h>
#include <unistd.h>

#include "control/control.hpp"

namespace ration::test {

class SocketControl final : public Control {
 public:
  SocketControl(int fd, int rank) : fd_(fd), rank_(rank) {}
  ~SocketControl() override { close(fd_); }
  SocketControl(const SocketControl&) = delete;
  SocketControl& operator=(const SocketControl&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return 2; }

  void fold(std::string_view, const Bytes& record, const Combine& combine, Bytes& result,
            std::string_view) override {
    if (rank_ == 0) {
      Bytes records[2] = {record, take()};
      result.clear();
      combine(records, result);
      give(result);
    } else {
      give(record);
      result = take();
    }
  }
  void abort(std::string_view) override {}
  [[nodiscard]] std::optional<std::string> aborted() const override { return std::nullopt; }

 private:
  void give(const Bytes& bytes) const {
    const std::uint64_t size = bytes.size();
    if (send(fd_, &size, sizeof size, MSG_NOSIGNAL) != sizeof size) fail();
    if (send(fd_, bytes.data(), size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) fail();
  }
  [[nodiscard]] Bytes take() const {
    std::uint64_t size = 0;
    if (recv(fd_, &size, sizeof size, MSG_WAITALL) != sizeof size) fail();
    Bytes bytes(size);
    if (recv(fd_, bytes.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) fail();
    return bytes;
  }
  [[noreturn]] static void fail() {
    throw std::system_error(errno, std::generic_category(), "the other process");
  }

  const int fd_;
  const int rank_;
};

}  // namespace ration::test
