#pragma once
// Any elements of a checkpoint, as if it were one array per flat and kind: for tools that read two
// checkpoints side by side or in another order than the shards'.

#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "checkpoint/shard.hpp"

namespace ration::checkpoint {

/// Reads best by ascending elements: the last block is kept. A few shards are open at a time.
class StateReader {
 public:
  StateReader(std::filesystem::path folder, const Manifest& manifest);

  /// Elements [first, first + count) of a flat's array, verified; each shard's `rest`, too, when it
  /// is first opened. Throws CorruptCheckpoint, IoError.
  void read(int flat, int kind, std::int64_t first, std::int64_t count, std::byte* to);

 private:
  struct Open {
    ShardReader reader;
    std::map<std::pair<int, int>, const PlacedSlice*> slices;
    std::uint64_t used = 0;  ///< when, last
  };
  /// The block that was read last.
  struct Kept {
    int flat = -1;
    int kind = -1;
    std::int64_t first = 0;  ///< in the flat
    std::int64_t count = 0;
    std::vector<std::byte> bytes;
  };

  Open& shard(int rank);
  void read_from(int rank, int flat, int kind, std::int64_t first, std::int64_t count,
                 std::byte* to);

  std::filesystem::path folder_;
  const Manifest& manifest_;
  std::vector<FlatPlace> places_;
  std::map<int, Open> open_;
  std::set<int> checked_;
  std::uint64_t clock_ = 0;
  Kept kept_;
};

}  // namespace ration::checkpoint
