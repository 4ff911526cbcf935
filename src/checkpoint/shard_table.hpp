#pragma once
// The binary tables of a shard: which slices it has and where, as rows of 40 bytes, little-endian.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/shard.hpp"
#include "io/file.hpp"

namespace ration::checkpoint {

inline constexpr std::size_t kRowBytes = 40;

/// Of a slice of that many bytes.
inline std::uint64_t blocks_of(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}

std::vector<std::byte> to_rows(std::span<const PlacedSlice> slices);

/// Checked against the manifest and the file's size: ascending by offset, nothing overlapping, one
/// slice of each flat and kind. Throws CorruptCheckpoint with `where` in front.
std::vector<PlacedSlice> from_rows(std::span<const std::byte> rows, const Manifest& manifest,
                                   const ShardEntry& entry, const std::string& where);

/// "/optimizer/unit/f32.trainable/exp_avg"
std::string dataset_name(const Manifest& manifest, const FlatPlace& place, int kind);

/// XXH3-64 of all bytes of the file outside slices and tables.
std::uint64_t checksum_of_rest(const io::File& file, std::span<const PlacedSlice> slices,
                               const Extent& index, const Extent& checksums);

}  // namespace ration::checkpoint
