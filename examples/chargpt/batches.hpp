#pragma once
// The order of the data, fixed so that a run can be replayed: item i is tokens
// [i seq, i seq + seq], inputs and, shifted by one, targets; the items of a rank come as
// DistributedSampler gives them, epoch after epoch.

#include <cstdint>
#include <span>
#include <vector>

#include <ration/sampler.hpp>

namespace chargpt {

/// Whole items in a text of `tokens`.
constexpr std::int64_t items_in(std::size_t tokens, int sequence) {
  return tokens == 0 ? 0 : (static_cast<std::int64_t>(tokens) - 1) / sequence;
}

/// One rank's micro-batches, one after the other. `tokens` must outlive it.
class Batches {
 public:
  Batches(std::span<const std::uint8_t> tokens, int sequence, int sequences,
          const ration::DistributedSampler& sampler);

  /// Fills `inputs` and `targets` with the next micro-batch.
  void next();

  /// Goes on as if this rank had taken that many items.
  void seek(std::int64_t items);

  [[nodiscard]] std::span<const std::uint8_t> inputs() const { return inputs_; }
  [[nodiscard]] std::span<const std::uint8_t> targets() const { return targets_; }

 private:
  std::int64_t next_item();

  std::span<const std::uint8_t> tokens_;
  int sequence_;
  int sequences_;
  ration::DistributedSampler sampler_;
  std::uint64_t epoch_ = 0;
  std::vector<std::int64_t> order_;
  std::size_t place_ = 0;  ///< in order_
  std::vector<std::uint8_t> inputs_, targets_;
};

}  // namespace chargpt
