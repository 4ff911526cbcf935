#pragma once
// One pass over a whole checkpoint, two shards at a time, each in the order of its file: every byte
// is read once and verified before it is handed out, in memory of a few blocks.

#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include "checkpoint/shard.hpp"

namespace ration::checkpoint {

/// Elements [first, first + count) of one kind of array of a flat.
struct SweepPiece {
  int flat = 0;  ///< as numbered by flats_of
  int kind = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  const std::byte* data = nullptr;  ///< gone when the call returns
};

/// Whether an array is to be read.
using Wants = std::function<bool(int flat, int kind)>;

/// Which elements of the flats were met.
class Coverage {
 public:
  void add(const Slice& slice);
  /// Throws CorruptCheckpoint unless each element of each wanted array was met exactly once.
  void check(const Manifest& manifest, const Wants& wants, const std::string& where) const;

 private:
  std::map<std::pair<int, int>, std::multimap<std::int64_t, std::int64_t>> met_;
};

/// Reads what is wanted, pieces of at most a block. `take` is called by two threads, one at a time.
/// Checks each shard's `rest` first, coverage at the end. Throws CorruptCheckpoint, IoError, what
/// `take` throws; of several the lowest rank's.
void sweep(const std::filesystem::path& folder, const Manifest& manifest, const Wants& wants,
           const std::function<void(const SweepPiece&)>& take);

/// The share of rank `rank` of `world` in every array of a checkpoint, as the engine saves it.
std::vector<Slice> slices_of(const Manifest& manifest, int rank, int world);

/// Elements of a flat that each of `world` ranks saves; the last may have fewer.
std::int64_t shard_length(const FlatEntry& flat, int world);

}  // namespace ration::checkpoint
