#include <ration/memory.hpp>

#include <fmt/format.h>

namespace ration {

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameters:
      return "parameters";
    case MemoryKind::gradients:
      return "gradients";
    case MemoryKind::optimizer_state:
      return "optimizer_state";
    case MemoryKind::buffers:
      return "buffers";
    case MemoryKind::snapshot:
      return "snapshot";
    case MemoryKind::trainer:
      return "trainer";
  }
  return "?";
}

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::disk:
      return "disk";
  }
  return "?";
}

std::string MemoryReport::table() const {
  std::string text = fmt::format("{:<16}{:>14}{:>14}\n", "memory", "planned MiB", "allocated MiB");
  std::uint64_t all_planned = 0;
  std::uint64_t all_allocated = 0;
  constexpr double kMiB = 1024.0 * 1024.0;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (planned[kind] == 0 && allocated[kind] == 0) continue;
    text += fmt::format("{:<16}{:>14.2f}{:>14.2f}\n", name_of(static_cast<MemoryKind>(kind)),
                        static_cast<double>(planned[kind]) / kMiB,
                        static_cast<double>(allocated[kind]) / kMiB);
    all_planned += planned[kind];
    all_allocated += allocated[kind];
  }
  text +=
      fmt::format("{:<16}{:>14.2f}{:>14.2f}\n", "total", static_cast<double>(all_planned) / kMiB,
                  static_cast<double>(all_allocated) / kMiB);
  return text;
}

}  // namespace ration
