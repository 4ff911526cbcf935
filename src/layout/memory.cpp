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

std::string MemoryReport::table() const {
  std::uint64_t all_planned = 0;
  std::uint64_t all_allocated = 0;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    all_planned += planned[kind];
    all_allocated += allocated[kind];
  }
  // In the unit that shows the smaller rows too.
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const bool large = all_planned >= 16 * kMiB;
  const double unit = large ? static_cast<double>(kMiB) : 1024.0;
  const std::string_view unit_name = large ? "MiB" : "KiB";
  std::string text =
      fmt::format("{:<16}{:>14}{:>14}\n", "memory", fmt::format("planned {}", unit_name),
                  fmt::format("allocated {}", unit_name));
  const auto row = [&](std::string_view name, std::uint64_t plan, std::uint64_t memory) {
    text += fmt::format("{:<16}{:>14.2f}{:>14.2f}\n", name, static_cast<double>(plan) / unit,
                        static_cast<double>(memory) / unit);
  };
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (planned[kind] == 0 && allocated[kind] == 0) continue;
    row(name_of(static_cast<MemoryKind>(kind)), planned[kind], allocated[kind]);
  }
  row("total", all_planned, all_allocated);
  if (disk > 0) row("on disk", disk, disk);
  return text;
}

}  // namespace ration
