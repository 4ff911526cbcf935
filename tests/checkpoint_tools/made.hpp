#pragma once
// Checkpoints made without a training: known values at every place, any number of ranks.

#include <bit>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/folders.hpp"
#include "checkpoint/shard.hpp"
#include "checkpoint/sweep.hpp"
#include "support/folder.hpp"

namespace ration::test {

namespace ck = ration::checkpoint;

/// The value at a place, in the type's own bits: every exponent that the type has, no NaN.
inline std::uint32_t bits_at(DType dtype, int flat, int kind, std::int64_t element) {
  auto x = static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15u +
           static_cast<std::uint64_t>(flat * 31 + kind + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
  x ^= x >> 29;
  if (dtype == DType::f32) {
    const auto bits = static_cast<std::uint32_t>(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits & 0x807fffffu : bits;
  }
  const auto bits = static_cast<std::uint32_t>(x & 0xffffu);
  const std::uint32_t exponent = dtype == DType::bf16 ? 0x7f80u : 0x7c00u;
  return (bits & exponent) == exponent ? bits & ~exponent : bits;
}

inline std::vector<std::byte> values_at(DType dtype, int flat, int kind, std::int64_t first,
                                        std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_at(dtype, flat, kind, first + i);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size_of(dtype), &bits, size_of(dtype));
  }
  return bytes;
}

inline ck::FlatEntry flat_of(DType dtype, bool trainable, std::vector<ck::KindEntry> kinds,
                             std::vector<ck::ParameterEntry> parameters) {
  ck::FlatEntry flat{.dtype = dtype, .trainable = trainable, .kinds = std::move(kinds)};
  for (ck::ParameterEntry& p : parameters) {
    p.offset = (flat.length + 63) / 64 * 64;
    flat.length = p.offset + p.count();
    flat.parameters.push_back(std::move(p));
  }
  return flat;
}

/// An optimizer with every kind of flat, shapes of zero to three dimensions, a tied name.
inline ck::OptimizerEntry made_optimizer(std::string name = "optimizer") {
  ck::OptimizerEntry optimizer{.name = std::move(name), .stage = 2, .steps = 7};
  optimizer.groups.push_back({.rule = "AdamW", .options = {{"learning_rate", 0.125}}});
  optimizer.units.push_back(
      {.name = "embedding",
       .flats = {flat_of(DType::bf16, true,
                         {{"parameter", DType::bf16}, {"master"}, {"exp_avg"}, {"exp_avg_sq"}},
                         {{.name = "wte", .shape = {7, 5}, .step_count = 7},
                          {.name = "wpe/x", .shape = {3, 4, 50}, .step_count = 7}})},
       .tied = {{.name = "lm_head", .parameter = "wte"}}});
  optimizer.units.push_back(
      {.name = "h.0",
       .flats = {flat_of(DType::f32, true, {{"parameter"}, {"exp_avg", DType::bf16}},
                         {{.name = "weight", .shape = {130, 11}},
                          {.name = "bias", .shape = {11}},
                          {.name = "scale", .shape = {}},
                          {.name = "empty", .shape = {0, 4}}}),
                 flat_of(DType::f16, false, {{"parameter", DType::f16}},
                         {{.name = "table", .shape = {9, 801}}})}});
  return optimizer;
}

inline ck::Manifest made_manifest(std::vector<ck::OptimizerEntry> optimizers = {made_optimizer()},
                                  std::int64_t step = 7) {
  ck::Manifest manifest;
  manifest.step = step;
  manifest.optimizers = std::move(optimizers);
  manifest.extra = {{"note", "as it was"}};
  return manifest;
}

/// Saves it as `world` ranks would, `values_at` in every place of a parameter and zeros between.
/// The manifest as it was committed.
inline ck::Manifest save_made(const std::filesystem::path& root, ck::Manifest manifest, int world) {
  ck::SaveFolder folder(root, manifest.step, 0);
  manifest.uuid = folder.nonce();
  std::vector<ck::ShardEntry> shards;
  const std::vector<ck::FlatPlace> places = flats_of(manifest);
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<ck::Slice> slices = ck::slices_of(manifest, rank, world);
    ck::ShardWriter writer(folder.path() / ck::shard_name(rank, world), manifest, rank, world,
                           slices);
    const ck::Fill fill = [&](std::size_t s, std::int64_t first, std::int64_t count,
                              std::byte* to) {
      const ck::Slice& slice = slices[s];
      const ck::FlatEntry& flat =
          ck::flat_at(manifest, places[static_cast<std::size_t>(slice.flat)]);
      const DType dtype = flat.kinds[static_cast<std::size_t>(slice.kind)].dtype;
      std::memset(to, 0, static_cast<std::size_t>(count) * size_of(dtype));
      const std::int64_t begin = slice.start + first;
      for (const ck::ParameterEntry& p : flat.parameters) {
        const std::int64_t from = std::max(begin, p.offset);
        const std::int64_t end = std::min(begin + count, p.offset + p.count());
        if (from >= end) continue;
        const auto values = values_at(dtype, slice.flat, slice.kind, from, end - from);
        std::memcpy(to + static_cast<std::size_t>(from - begin) * size_of(dtype), values.data(),
                    values.size());
      }
    };
    while (!writer.advance(fill, std::chrono::steady_clock::time_point::max())) {
    }
    shards.push_back(writer.entry());
  }
  manifest.shards = std::move(shards);
  folder.commit(ck::to_text(manifest));
  return manifest;
}

/// A root with one made step in it.
struct Made {
  Folder root;
  ck::Manifest manifest;
  std::filesystem::path folder;

  explicit Made(int world, ck::Manifest what = made_manifest())
      : manifest(save_made(root.path(), std::move(what), world)),
        folder(ck::list_steps(root.path()).back().path) {}

  /// What a tensor must hold.
  struct Expected {
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] Expected expected(const std::string& parameter, const std::string& kind,
                                  int optimizer = 0) const {
    const std::vector<ck::FlatPlace> places = flats_of(manifest);
    for (std::size_t f = 0; f < places.size(); ++f) {
      const ck::FlatEntry& flat = ck::flat_at(manifest, places[f]);
      if (places[f].optimizer != optimizer) continue;
      for (const ck::ParameterEntry& p : flat.parameters) {
        for (std::size_t k = 0; k < flat.kinds.size(); ++k) {
          if (p.name != parameter || flat.kinds[k].name != kind) continue;
          return {flat.kinds[k].dtype, p.shape,
                  values_at(flat.kinds[k].dtype, static_cast<int>(f), static_cast<int>(k), p.offset,
                            p.count())};
        }
      }
    }
    ADD_FAILURE() << "no " << parameter << " with " << kind;
    return {};
  }
};

/// All names in a folder.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Turns one bit of a file.
inline void flip(const std::filesystem::path& path, std::uint64_t offset) {
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  const int c = std::fgetc(file);
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  std::fputc(c ^ 1, file);
  std::fclose(file);
}

/// Where the data of a shard's `slice`th slice begins.
inline std::uint64_t offset_in(const Made& made, int rank, std::size_t slice = 0) {
  return ck::ShardReader(made.folder, made.manifest, rank).slices()[slice].offset;
}

}  // namespace ration::test
