#pragma once
// Which items of a data set a rank sees in an epoch, index for index what
// torch.utils.data.DistributedSampler gives.

#include <cstdint>
#include <vector>

namespace ration {

/// Splits the indices 0..size-1 over ranks. Copyable, no memory but its options.
class DistributedSampler {
 public:
  struct Options {
    bool shuffle = true;
    std::uint64_t seed = 0;
    bool drop_last =
        false;  ///< cut to a multiple of the world size; otherwise repeat items from the front
  };

  /// Throws InvalidArgument unless 0 <= rank < world.
  DistributedSampler(std::int64_t size, int rank, int world, Options options);
  DistributedSampler(std::int64_t size, int rank, int world)
      : DistributedSampler(size, rank, world, Options{}) {}

  /// The next epoch's order depends on seed + epoch.
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

  /// Items each rank gets in an epoch.
  [[nodiscard]] std::int64_t size() const;

  /// This rank's item indices in the present epoch, in order. O(data set size) time and memory.
  [[nodiscard]] std::vector<std::int64_t> indices() const;

 private:
  std::int64_t items_;
  int rank_;
  int world_;
  Options options_;
  std::uint64_t epoch_ = 0;
};

}  // namespace ration
