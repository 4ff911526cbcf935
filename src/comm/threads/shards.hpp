#pragma once
// Shards that peers read directly, and the gather that does.

#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/threads/collective.hpp"
#include "comm/threads/waiter.hpp"

namespace ration {

/// What all ranks share: where each owner's shard is, and how often it was published.
struct ShardTable {
  struct alignas(64) Owner {
    std::atomic<std::uint64_t> epoch{0};
    const void* shard = nullptr;
    Signal signal;
  };
  std::vector<std::unique_ptr<Owner>> owners;
  std::size_t bytes = 0;
};

class ThreadsShards final : public SharedShards {
 public:
  ThreadsShards(std::shared_ptr<ShardTable> table, int rank, bool one_sided)
      : table_(std::move(table)), rank_(rank), one_sided_(one_sided) {}

  void publish() override;
  [[nodiscard]] bool one_sided() const override { return one_sided_; }

  [[nodiscard]] const std::shared_ptr<ShardTable>& table() const { return table_; }
  [[nodiscard]] const void* own() const { return owner(rank_).shard; }
  /// How often this rank has published: what a gather must see of the others.
  [[nodiscard]] std::uint64_t epoch() const {
    return owner(rank_).epoch.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] ShardTable::Owner& owner(int rank) const {
    return *table_->owners[static_cast<std::size_t>(rank)];
  }

  const std::shared_ptr<ShardTable> table_;
  const int rank_;
  const bool one_sided_;
};

/// Copies each owner's shard once it has published as often as this rank had when it asked.
class ShardGatherTask {
 public:
  ShardGatherTask(Waiter waiter, const Operation& operation, std::shared_ptr<ShardTable> table,
                  std::uint64_t epoch, const char* stream);
  bool operator()(bool may_block);

 private:
  Waiter waiter_;
  Operation operation_;
  std::shared_ptr<ShardTable> table_;
  std::uint64_t epoch_;
  const char* stream_;
  std::bitset<kMostThreads> copied_;
};

}  // namespace ration
