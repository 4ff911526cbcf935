#include <ration/version.hpp>

#include <string_view>

#include <fmt/format.h>

namespace ration {
namespace {

struct Backend {
  std::string_view name;
  std::string_view built;
};

constexpr std::string_view kAbsent = "not in this version";

constexpr Backend kBackends[] = {
    {"threads", "yes (ranks as threads of one process)"},
    {"gloo", RATION_GLOO_BUILT},
    {"mpi", RATION_MPI_BUILT},
    {"nccl", kAbsent},
    {"cuda", kAbsent},
    {"io_uring", RATION_URING_BUILT},
};

}  // namespace

std::string version() {
  return fmt::format("{}.{}.{}", RATION_VERSION_MAJOR, RATION_VERSION_MINOR, RATION_VERSION_PATCH);
}

std::string build_summary() {
  std::string lines;
  for (const Backend& backend : kBackends)
    lines += fmt::format("{:<9} {}\n", backend.name, backend.built);
  return lines;
}

}  // namespace ration
