#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "control/tcp/star.hpp"

namespace ration {
namespace {

/// A socket that listens on all interfaces, or -1 with errno.
int listen_on(std::uint16_t port, bool ipv6) {
  const int socket = ::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int yes = 1;
  const int no = 0;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  int bound = -1;
  if (ipv6) {
    setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(port);
    bound = bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    bound = bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (bound == 0 && listen(socket, SOMAXCONN) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Listener::Listener(const std::vector<std::uint16_t>& ports) {
  if (ports.empty()) throw InvalidArgument("rank 0: no port to listen on was given");
  int error = 0;
  for (const std::uint16_t port : ports) {
    for (const bool ipv6 : {true, false}) {
      socket_ = listen_on(port, ipv6);
      if (socket_ >= 0) {
        ipv6_ = ipv6;
        port_ = port_of(socket_);
        return;
      }
      error = errno;
      if (error == EADDRINUSE || error == EACCES) break;  // not for want of IPv6
    }
  }
  throw IoError(fmt::format("rank 0: cannot listen on port{} {}: {}; give others",
                            ports.size() == 1 ? "" : "s", fmt::join(ports, ", "),
                            std::strerror(error)));
}

Listener::~Listener() {
  if (socket_ >= 0) ::close(socket_);
}

int Listener::release() {
  return std::exchange(socket_, -1);
}

}  // namespace ration
