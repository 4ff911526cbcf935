#pragma once
// A small checkpoint made without ranks: what every file's test begins with.

#include <vector>

#include "checkpoint/shard.hpp"

namespace ration::test {

/// One optimizer with a unit of `length` elements in one parameter, and the kinds of AdamW.
inline checkpoint::Manifest small_manifest(std::int64_t length, DType dtype = DType::f32) {
  checkpoint::FlatEntry flat{.dtype = dtype, .length = length};
  flat.kinds = {{.name = "parameter", .dtype = dtype}};
  if (dtype != DType::f32) flat.kinds.push_back({.name = "master"});
  flat.kinds.push_back({.name = "exp_avg"});
  flat.parameters = {{.name = "layer.weight", .shape = {length}, .step_count = 3}};
  checkpoint::Manifest manifest;
  manifest.uuid = "0123456789abcdef0123456789abcdef";
  manifest.step = 3;
  manifest.extra = {{"note", "text"}, {"random state", {"\0\xff", 2}}};
  manifest.optimizers = {
      {.name = "optimizer",
       .stage = 2,
       .steps = 3,
       .groups = {{.rule = "AdamW", .options = {{"learning_rate", 0.1}, {"beta1", 0.9}}}},
       .units = {{.name = "a/unit", .flats = {flat}, .tied = {{"head.weight", "layer.weight"}}}}}};
  return manifest;
}

/// The share of a rank in every array of `small_manifest`.
inline std::vector<checkpoint::Slice> share_of(const checkpoint::Manifest& manifest, int rank,
                                               int world) {
  const auto& flat = manifest.optimizers[0].units[0].flats[0];
  const std::int64_t shard = ((flat.length + world - 1) / world + 63) / 64 * 64;
  const std::int64_t start = std::min(flat.length, shard * rank);
  std::vector<checkpoint::Slice> slices;
  for (std::size_t kind = 0; kind < flat.kinds.size(); ++kind) {
    slices.push_back({.kind = static_cast<int>(kind),
                      .start = start,
                      .length = std::min(flat.length, start + shard) - start});
  }
  return slices;
}

/// Any byte of any array, from its place alone.
inline std::byte byte_at(int kind, std::int64_t byte) {
  return static_cast<std::byte>((byte * 31 + kind * 7 + byte / 255) & 0x3f);
}

/// Writes one rank's file and appends its entry to the manifest.
inline void write_shard(const std::filesystem::path& folder, checkpoint::Manifest& manifest,
                        int rank, int world) {
  const auto slices = share_of(manifest, rank, world);
  const auto& kinds = manifest.optimizers[0].units[0].flats[0].kinds;
  checkpoint::ShardWriter writer(folder / checkpoint::shard_name(rank, world), manifest, rank,
                                 world, slices);
  const checkpoint::Fill fill = [&](std::size_t slice, std::int64_t first, std::int64_t count,
                                    std::byte* to) {
    const auto& s = slices[slice];
    const auto element =
        static_cast<std::int64_t>(size_of(kinds[static_cast<std::size_t>(s.kind)].dtype));
    for (std::int64_t i = 0; i < count * element; ++i)
      to[i] = byte_at(s.kind, (s.start + first) * element + i);
  };
  while (!writer.advance(fill, std::chrono::steady_clock::now())) {
  }
  manifest.shards.push_back(writer.entry());
}

/// A whole step's folder.
inline checkpoint::Manifest write_small(const std::filesystem::path& folder, std::int64_t length,
                                        int world, DType dtype = DType::f32) {
  checkpoint::Manifest manifest = small_manifest(length, dtype);
  for (int rank = 0; rank < world; ++rank) write_shard(folder, manifest, rank, world);
  return manifest;
}

}  // namespace ration::test
