#include <ration/version.hpp>

#include <fmt/format.h>

namespace ration {

std::string version() {
  return fmt::format("{}.{}.{}", RATION_VERSION_MAJOR, RATION_VERSION_MINOR, RATION_VERSION_PATCH);
}

std::string build_summary() {
  return "threads  yes (ranks as threads of one process)\n";
}

}  // namespace ration
