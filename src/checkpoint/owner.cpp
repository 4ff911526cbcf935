#include "checkpoint/owner.hpp"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

#include <unistd.h>

#include <fmt/format.h>

namespace ration::checkpoint {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string boot() {
  std::string id = contents("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

// Field 22 of /proc/PID/stat, in clock ticks since the boot; empty when there is no such process.
// The second field is a name in parentheses that may hold anything.
std::string start_time(const std::string& pid) {
  const std::string stat = contents("/proc/" + pid + "/stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

std::string own_identity() {
  const std::string pid = std::to_string(getpid());
  return fmt::format("{}\n{}\n{}\n{}\n", host_name(), boot(), pid, start_time(pid));
}

bool is_known_dead(const std::string& identity) {
  std::istringstream lines(identity);
  std::string host, its_boot, pid, start;
  if (!std::getline(lines, host) || !std::getline(lines, its_boot) || !std::getline(lines, pid) ||
      !std::getline(lines, start))
    return false;
  if (host != host_name() || its_boot.empty() || boot().empty()) return false;
  if (its_boot != boot()) return true;
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos) return false;
  return start_time(pid) != start;
}

}  // namespace ration::checkpoint
