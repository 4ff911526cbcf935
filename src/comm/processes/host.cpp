#include "comm/processes/host.hpp"

#include <fstream>

#include <unistd.h>

#include <fmt/format.h>

namespace ration {
namespace {

std::string link_of(const char* path) {
  char target[256];
  const ssize_t length = readlink(path, target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "?";
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return fmt::format("{} {} {} {}", boot, name, link_of("/proc/self/ns/pid"), geteuid());
}

}  // namespace ration
