#include "checkpoint/reshard.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/state_reader.hpp"
#include "checkpoint/sweep.hpp"
#include "core/align.hpp"

namespace ration::checkpoint {
namespace {

// Gives elements of an array by their place in its flat.
using ReadFlat =
    std::function<void(int flat, int kind, std::int64_t first, std::int64_t count, std::byte* to)>;

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const FlatPlace& place : flats_of(manifest)) {
    const FlatEntry& flat = flat_at(manifest, place);
    for (const KindEntry& kind : flat.kinds)
      bytes += static_cast<std::uint64_t>(flat.length) * size_of(kind.dtype);
  }
  return bytes;
}

// One rank after the other, all by this thread.
StepFolder write(Manifest manifest, const std::filesystem::path& to, int world,
                 const ReadFlat& read_flat, const Progress& progress) {
  const std::uint64_t total = bytes_of(manifest);
  SaveFolder folder(to, manifest.step, total);
  manifest.uuid = folder.nonce();
  manifest.shards.clear();
  std::vector<ShardEntry> shards;
  std::uint64_t before = 0;
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<Slice> slices = slices_of(manifest, rank, world);
    ShardWriter writer(folder.path() / shard_name(rank, world), manifest, rank, world, slices);
    const Fill fill = [&](std::size_t s, std::int64_t first, std::int64_t count, std::byte* data) {
      read_flat(slices[s].flat, slices[s].kind, slices[s].start + first, count, data);
    };
    // In short stretches, for the sake of the progress.
    while (
        !writer.advance(fill, std::chrono::steady_clock::now() + std::chrono::milliseconds(100))) {
      if (progress) progress(before + writer.written(), total);
    }
    before += writer.total();
    if (progress) progress(before, total);
    shards.push_back(writer.entry());
  }
  manifest.shards = std::move(shards);
  return folder.commit(to_text(manifest));
}

}  // namespace

StepFolder reshard(const std::filesystem::path& folder, const Manifest& manifest,
                   const std::filesystem::path& to, int world, const Progress& progress) {
  if (world < 1) throw InvalidArgument(fmt::format("world is {}, must be at least 1", world));
  StateReader reader(folder, manifest);
  return write(
      manifest, to, world,
      [&](int flat, int kind, std::int64_t first, std::int64_t count, std::byte* data) {
        reader.read(flat, kind, first, count, data);
      },
      progress);
}

StepFolder import(const ForeignFile& file, const std::filesystem::path& to, std::int64_t step,
                  const std::string& optimizer, const Progress& progress) {
  Manifest manifest;
  manifest.step = step;
  OptimizerEntry& made = manifest.optimizers.emplace_back();
  made.name = optimizer;
  made.groups.push_back({.rule = "none"});  // every parameter is of a group
  UnitEntry& unit = made.units.emplace_back();
  unit.name = "imported";
  // A flat per type. Frozen ones hold no state; where they are loaded says whether they train.
  std::vector<std::vector<std::size_t>> tensors;  // by flat, in order
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    FlatEntry flat{.dtype = dtype, .trainable = false};
    flat.kinds.push_back({.name = "parameter", .dtype = dtype});
    std::vector<std::size_t> members;
    for (std::size_t t = 0; t < file.tensors().size(); ++t) {
      const ForeignTensor& tensor = file.tensors()[t];
      if (tensor.dtype != dtype) continue;
      const std::int64_t offset = round_up(flat.length, kAlignElements);
      flat.parameters.push_back({.name = tensor.name, .shape = tensor.shape, .offset = offset});
      flat.length = offset + tensor.count;
      members.push_back(t);
    }
    if (members.empty()) continue;
    unit.flats.push_back(std::move(flat));
    tensors.push_back(std::move(members));
  }
  if (tensors.empty()) throw InvalidArgument("there is no tensor in the file");
  return write(
      manifest, to, 1,
      [&](int f, int, std::int64_t first, std::int64_t count, std::byte* data) {
        const FlatEntry& flat = unit.flats[static_cast<std::size_t>(f)];
        const std::size_t element = size_of(flat.dtype);
        std::memset(data, 0, static_cast<std::size_t>(count) * element);
        const std::vector<std::size_t>& members = tensors[static_cast<std::size_t>(f)];
        auto p = static_cast<std::size_t>(
            std::partition_point(flat.parameters.begin(), flat.parameters.end(),
                                 [&](const ParameterEntry& entry) {
                                   return entry.offset + entry.count() <= first;
                                 }) -
            flat.parameters.begin());
        for (; p < members.size() && flat.parameters[p].offset < first + count; ++p) {
          const ParameterEntry& entry = flat.parameters[p];
          const std::int64_t begin = std::max(first, entry.offset);
          const std::int64_t end = std::min(first + count, entry.offset + entry.count());
          if (begin >= end) continue;
          file.read(members[p], begin - entry.offset, end - begin,
                    data + static_cast<std::size_t>(begin - first) * element);
        }
      },
      progress);
}

}  // namespace ration::checkpoint
