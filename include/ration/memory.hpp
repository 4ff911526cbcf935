#pragma once
// The memory of a rank, planned before anything is allocated and reported as allocated.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ration {

/// What a buffer is for. `buffers` are gather slots and gradient buckets, `snapshot` what an
/// asynchronous save copies into, `trainer` what the trainer gave (counted, never allocated).
enum class MemoryKind : std::uint8_t {
  parameters,
  gradients,
  optimizer_state,
  buffers,
  snapshot,
  trainer
};
inline constexpr std::size_t kMemoryKinds = 6;
std::string_view name_of(MemoryKind kind);

/// One buffer of a rank.
struct InventoryEntry {
  std::string name = {};  ///< "h.3/f32/exp_avg", "gather slot 0", ...
  MemoryKind kind = MemoryKind::buffers;
  std::uint64_t bytes = 0;
};

/// Every buffer a rank will allocate.
using Inventory = std::vector<InventoryEntry>;

/// Bytes per kind, planned (the sum of the inventory) and allocated (what was asked of the system).
struct MemoryReport {
  std::array<std::uint64_t, kMemoryKinds> planned{};
  std::array<std::uint64_t, kMemoryKinds> allocated{};
  std::uint64_t disk = 0;  ///< bytes in swap files

  /// A table of two columns and a total, in KiB or MiB, ready to print; below it
  /// what is on disk.
  [[nodiscard]] std::string table() const;
};

}  // namespace ration
