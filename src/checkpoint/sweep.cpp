#include "checkpoint/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/align.hpp"

namespace ration::checkpoint {

void Coverage::add(const Slice& slice) {
  met_[{slice.flat, slice.kind}].emplace(slice.start, slice.length);
}

void Coverage::check(const Manifest& manifest, const Wants& wants, const std::string& where) const {
  const std::vector<FlatPlace> places = flats_of(manifest);
  for (std::size_t f = 0; f < places.size(); ++f) {
    const FlatEntry& flat = flat_at(manifest, places[f]);
    for (std::size_t k = 0; k < flat.kinds.size(); ++k) {
      const std::pair key(static_cast<int>(f), static_cast<int>(k));
      if (!wants(key.first, key.second)) continue;
      std::int64_t end = 0;
      const auto refuse = [&](std::string_view what, std::int64_t from, std::int64_t to) {
        const OptimizerEntry& optimizer =
            manifest.optimizers[static_cast<std::size_t>(places[f].optimizer)];
        throw CorruptCheckpoint(
            fmt::format("{}: elements {} to {} of \"{}\" of unit \"{}\" are {}", where, from, to,
                        flat.kinds[k].name,
                        optimizer.units[static_cast<std::size_t>(places[f].unit)].name, what));
      };
      const auto met = met_.find(key);
      if (met != met_.end()) {
        for (const auto& [start, length] : met->second) {
          if (start > end) refuse("in no shard", end, start);
          if (start < end) refuse("in two shards", start, end);
          end = start + length;
        }
      }
      if (end < flat.length) refuse("in no shard", end, flat.length);
    }
  }
}

void sweep(const std::filesystem::path& folder, const Manifest& manifest, const Wants& wants,
           const std::function<void(const SweepPiece&)>& take) {
  const std::size_t shards = manifest.shards.size();
  Coverage coverage;
  std::mutex taking;
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> stop = false;
  std::vector<std::exception_ptr> failed(shards);
  const auto read_shard = [&](std::size_t rank) {
    const ShardReader reader(folder, manifest, static_cast<int>(rank));
    reader.check_rest();
    for (const PlacedSlice& slice : reader.slices()) {
      if (stop || !wants(slice.flat, slice.kind)) continue;
      {
        const std::lock_guard lock(taking);
        coverage.add(slice);
      }
      const ShardReader::Range whole{.first = 0, .count = slice.length};
      reader.read(slice, std::span(&whole, 1),
                  [&](std::int64_t first, std::int64_t count, const std::byte* from) {
                    const std::lock_guard lock(taking);
                    take({.flat = slice.flat,
                          .kind = slice.kind,
                          .first = slice.start + first,
                          .count = count,
                          .dtype = slice.dtype,
                          .data = from});
                  });
    }
  };
  const auto read_shards = [&] {
    for (std::size_t rank = next++; rank < shards && !stop; rank = next++) {
      try {
        read_shard(rank);
      } catch (...) {
        failed[rank] = std::current_exception();
        stop = true;
      }
    }
  };
  {
    const std::jthread second(read_shards);
    read_shards();
  }
  for (const std::exception_ptr& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
  coverage.check(manifest, wants, folder.string());
}

std::int64_t shard_length(const FlatEntry& flat, int world) {
  return round_up((flat.length + world - 1) / world, kAlignElements);
}

std::vector<Slice> slices_of(const Manifest& manifest, int rank, int world) {
  std::vector<Slice> slices;
  const std::vector<FlatPlace> places = flats_of(manifest);
  for (std::size_t f = 0; f < places.size(); ++f) {
    const FlatEntry& flat = flat_at(manifest, places[f]);
    const std::int64_t shard = shard_length(flat, world);
    const std::int64_t start = std::min(shard * rank, flat.length);
    const std::int64_t end = std::min(start + shard, flat.length);
    for (std::size_t k = 0; start < end && k < flat.kinds.size(); ++k) {
      slices.push_back({.flat = static_cast<int>(f),
                        .kind = static_cast<int>(k),
                        .start = start,
                        .length = end - start});
    }
  }
  return slices;
}

}  // namespace ration::checkpoint
