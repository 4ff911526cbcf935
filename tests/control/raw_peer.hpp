#pragma once
// Somebody who connects to a star's rank 0 and may say anything: a stranger, or a rank's frames
// without a rank.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "control/tcp/protocol.hpp"
#include "control/tcp/star.hpp"

namespace ration {

class RawPeer {
 public:
  explicit RawPeer(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    wait_a_minute();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  /// The next who connects.
  static RawPeer accept(Listener& listener) {
    const int door = listener.release();
    RawPeer peer(std::in_place, ::accept4(door, nullptr, nullptr, SOCK_CLOEXEC));
    ::close(door);
    return peer;
  }
  RawPeer(RawPeer&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  RawPeer& operator=(RawPeer&&) = delete;
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() {
    if (socket_ >= 0) ::close(socket_);
  }

  [[nodiscard]] bool connected() const { return connected_; }

  /// False when the other side does not take it any more.
  bool say(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t size = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    }
    return true;
  }
  bool say(const tcp::SharedFrame& frame) { return say(std::span(*frame)); }

  /// The next frame that is no heartbeat; none when the other side has closed.
  std::optional<tcp::Frame> hear() {
    for (;;) {
      std::array<std::byte, 4096> bytes;
      const std::size_t wanted = std::min(decoder_.wanted(), bytes.size());
      const ssize_t size = wanted ? ::recv(socket_, bytes.data(), wanted, 0) : 0;
      if (wanted && size <= 0) return std::nullopt;
      std::span<const std::byte> input(bytes.data(), static_cast<std::size_t>(size));
      auto frame = decoder_.next(input);
      if (frame && frame->kind != tcp::FrameKind::heartbeat) return frame;
    }
  }

  /// Says hello as a rank and takes the seat.
  void join(int rank, int size, const std::string& token) {
    say(tcp::encode(tcp::Hello{.token = tcp::TokenHash::of(token),
                               .rank = rank,
                               .size = size,
                               .process = tcp::Process::self()}));
    const auto answer = hear();
    if (!answer) throw std::runtime_error("no welcome");
    tcp::decode<tcp::Welcome>(*answer);
    say(tcp::encode(tcp::Seated{}));
  }

 private:
  RawPeer(std::in_place_t /*connected*/, int socket) : socket_(socket), connected_(true) {
    wait_a_minute();
  }

  void wait_a_minute() const {
    const timeval patience{60, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }

  int socket_;
  bool connected_ = false;
  tcp::FrameDecoder decoder_{tcp::kMostOfRank};
};

/// Whether that rank is in, by asking for its seat, and leaving when it is offered.
inline bool seat_is_taken(std::uint16_t port, const std::string& token, int rank, int size) {
  RawPeer peer(port);
  peer.say(tcp::encode(tcp::Hello{.token = tcp::TokenHash::of(token),
                                  .rank = rank,
                                  .size = size,
                                  .process = tcp::Process::self()}));
  const auto answer = peer.hear();
  return answer && answer->kind == tcp::FrameKind::refusal &&
         tcp::decode<tcp::Refusal>(*answer).text.find("is there already") != std::string::npos;
}

}  // namespace ration
