#pragma once
// Shards that peers read directly, and the gather that does.

#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/collectives/waiter.hpp"
#include "comm/communicator.hpp"

namespace ration {

/// What an owner's peers see of its shard besides the data: how often it was published.
struct alignas(64) ShardOwner {
  explicit ShardOwner(bool between_processes = false) : signal(between_processes) {}
  std::atomic<std::uint64_t> epoch{0};
  Signal signal;
};

/// By rank, as this process sees them; all null but the own one where shards cannot be read.
struct ShardTable {
  std::vector<ShardOwner*> owners;
  std::vector<const void*> shards;
  std::size_t bytes = 0;
  bool one_sided = false;
  std::shared_ptr<void> memory;  ///< what `owners` are in
};

class ReadableShards final : public SharedShards {
 public:
  ReadableShards(std::shared_ptr<const ShardTable> table, int rank)
      : table_(std::move(table)), rank_(static_cast<std::size_t>(rank)) {}

  void publish() override;
  [[nodiscard]] bool one_sided() const override { return table_->one_sided; }

  [[nodiscard]] const std::shared_ptr<const ShardTable>& table() const { return table_; }
  [[nodiscard]] const void* own() const { return table_->shards[rank_]; }
  /// How often this rank has published: what a gather must see of the others.
  [[nodiscard]] std::uint64_t epoch() const {
    return table_->one_sided ? table_->owners[rank_]->epoch.load(std::memory_order_relaxed) : 0;
  }

 private:
  const std::shared_ptr<const ShardTable> table_;
  const std::size_t rank_;
};

/// Copies each owner's shard once it has published as often as this rank had when it asked.
class ShardGatherTask {
 public:
  ShardGatherTask(Waiter waiter, const Operation& operation,
                  std::shared_ptr<const ShardTable> table, std::uint64_t epoch, const char* stream);
  bool operator()(bool may_block);

 private:
  Waiter waiter_;
  Operation operation_;
  std::shared_ptr<const ShardTable> table_;
  std::uint64_t epoch_;
  const char* stream_;
  std::bitset<kMostNear> copied_;
};

}  // namespace ration
