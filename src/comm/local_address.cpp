#include "comm/local_address.hpp"

#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ration/error.hpp>

namespace ration {
namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    sockaddr_in ip{};
    std::memcpy(&ip, address, sizeof ip);
    inet_ntop(AF_INET, &ip.sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 ip{};
    std::memcpy(&ip, address, sizeof ip);
    // A link-local address means something else on every host.
    if (!IN6_IS_ADDR_LINKLOCAL(&ip.sin6_addr))
      inet_ntop(AF_INET6, &ip.sin6_addr, text, sizeof text);
  }
  return text;
}

struct Interface {
  std::string name;
  std::string address;
  bool usable;  // up, and not loopback
};

/// IPv4 first: what most clusters are wired for.
std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at; at = at->ifa_next) {
      if (!at->ifa_addr || at->ifa_addr->sa_family != family) continue;
      const std::string address = text_of(at->ifa_addr);
      const bool usable = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
      if (!address.empty()) found.push_back({at->ifa_name, address, usable});
    }
  }
  return found;
}

std::vector<std::string> interface_names() {
  const std::unique_ptr<struct if_nameindex, decltype(&if_freenameindex)> list(if_nameindex(),
                                                                               if_freenameindex);
  std::vector<std::string> names;
  for (const struct if_nameindex* at = list.get(); at && at->if_name; ++at)
    names.emplace_back(at->if_name);
  return names;
}

/// Connecting a datagram socket sends nothing: it asks the routing table.
std::optional<std::string> source_towards(const sockaddr* peer, socklen_t length) {
  const int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_storage own{};
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  socklen_t own_length = sizeof own;
  const bool known = connect(fd, peer, length) == 0 && getsockname(fd, address, &own_length) == 0;
  close(fd);
  if (!known) return std::nullopt;
  std::string text = text_of(address);
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace

std::string network_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (stat("/proc/self/ns/net", &space) != 0) space.st_ino = 0;
  return fmt::format("{}/{}", boot, space.st_ino);
}

bool is_interface(const std::string& name) {
  return if_nametoindex(name.c_str()) != 0;
}

std::string address_of_interface(const std::string& name) {
  for (const Interface& interface : interfaces()) {
    if (interface.name == name) return interface.address;
  }
  throw InvalidArgument(fmt::format(
      "\"{}\" is not a network interface with an address; this host has {}; set RATION_INTERFACE",
      name, fmt::join(interface_names(), ", ")));
}

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  const int error = getaddrinfo(host.c_str(), "9", &hints, &first);
  if (error != 0) {
    throw InvalidArgument(
        fmt::format("\"{}\" is neither a network interface of this host ({}) nor a host: {}", host,
                    fmt::join(interface_names(), ", "), gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  for (const addrinfo* at = first; at; at = at->ai_next) {
    if (auto source = source_towards(at->ai_addr, at->ai_addrlen)) return *source;
  }
  throw InvalidArgument(fmt::format(
      "this host has no route to \"{}\"; name its network interface by RATION_INTERFACE ({})", host,
      fmt::join(interface_names(), ", ")));
}

std::string default_address() {
  sockaddr_in anywhere{};  // of a range that is reserved for documentation
  anywhere.sin_family = AF_INET;
  anywhere.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &anywhere.sin_addr);
  const auto source = source_towards(reinterpret_cast<const sockaddr*>(&anywhere), sizeof anywhere);
  if (source && !is_loopback(*source)) return *source;
  for (const Interface& interface : interfaces()) {
    if (interface.usable) return interface.address;
  }
  return {};
}

std::vector<std::string> reachable_addresses() {
  std::vector<std::string> addresses;
  for (const Interface& interface : interfaces()) {
    const bool ipv4 = interface.address.find(':') == std::string::npos;
    if (interface.usable && ipv4) addresses.push_back(interface.address);
  }
  addresses.emplace_back("127.0.0.1");
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace ration
