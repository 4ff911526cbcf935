#pragma once
// The Communicator over a RankGroup: puts the collectives' tasks into streams. Backends add what
// they do on their own: shared shards, memory, splitting.

#include <atomic>
#include <memory>
#include <vector>

#include "comm/collectives/pair.hpp"
#include "comm/collectives/shards.hpp"
#include "comm/communicator.hpp"
#include "device/host/host_stream.hpp"

namespace ration {

class GroupCommunicator : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view backend() const override { return backend_; }
  [[nodiscard]] Control& control() override { return *control_; }
  [[nodiscard]] std::uint64_t sent_bytes() const override {
    return sent_bytes_.load(std::memory_order_relaxed);
  }

  Sequence submit(Stream& stream, const Operation& operation) override;
  void release(Stream& stream, Sequence sequence) override;
  std::unique_ptr<SharedShards> share(const void* shard, std::size_t bytes) override;
  std::unique_ptr<Stream> make_stream(const char* name, std::size_t tasks) override;

 protected:
  GroupCommunicator(std::shared_ptr<RankGroup> group, int rank, std::unique_ptr<Control> control,
                    std::string_view backend);

  /// Collective: everyone's shard, and who owns it. Throws InvalidArgument, on all ranks, if their
  /// sizes differ.
  virtual std::shared_ptr<const ShardTable> exchange_shards(const void* shard,
                                                            std::size_t bytes) = 0;
  /// Throws it: shards of `bytes` and `other_bytes`, of ranks of this group.
  [[noreturn]] void refuse_sizes(std::size_t bytes, int other, std::size_t other_bytes) const;

  [[nodiscard]] bool direct() const { return group_->stream_mode() == StreamMode::direct; }

 private:
  Sequence submit_collective(HostStream& stream, const Operation& operation);
  Sequence submit_pair(HostStream& stream, const Operation& operation);
  Sequence submit_shards(HostStream& stream, const Operation& operation);

  const std::shared_ptr<RankGroup> group_;
  const int rank_;
  const std::unique_ptr<Control> control_;
  const std::string_view backend_;
  const std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
  Sequence next_ = 0;
  std::vector<std::uint64_t> sent_;      // to each peer
  std::vector<std::uint64_t> received_;  // from each peer
  std::atomic<std::uint64_t> sent_bytes_{0};
};

/// One rank's wish in a split, and what all the wishes make: the members of each part by their rank
/// in the whole, in the parts' order.
struct SplitWish {
  int color;
  int key;
};
std::vector<std::vector<int>> split_parts(const std::vector<SplitWish>& wishes);

}  // namespace ration
