#include "comm/threads/threads.hpp"

#include <map>
#include <mutex>
#include <numeric>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/collectives/group_communicator.hpp"
#include "control/in_process/in_process.hpp"
#include "core/record.hpp"

namespace ration {
namespace {

// All ranks share one: every pointer is good everywhere.
class ThreadsGroup final : public RankGroup {
 public:
  ThreadsGroup(std::vector<int> names, StreamMode stream_mode, std::shared_ptr<Alarm> alarm)
      : RankGroup(std::move(names), stream_mode, std::move(alarm)),
        hub_(make_in_process_hub(RankGroup::names(), shared_alarm())) {
    std::vector<Member*> all;
    for (int rank = 0; rank < size(); ++rank) {
      all.push_back(members_.emplace_back(std::make_unique<Member>(false)).get());
    }
    set_members(std::move(all));
  }

  [[nodiscard]] const std::shared_ptr<InProcessHub>& hub() const { return hub_; }

  Pair& pair(int sender, int receiver) override {
    const std::lock_guard lock(mutex_);
    auto& pair = pairs_[{sender, receiver}];
    if (!pair) pair = std::make_unique<Pair>();
    return *pair;
  }

  [[nodiscard]] Place place(const void* data, std::size_t) const override {
    return {.arena = 0, .offset = reinterpret_cast<std::uintptr_t>(data)};
  }
  [[nodiscard]] const void* find(const Place& place) const override {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(place.offset));
  }

  /// Holds memory that peers may read until every rank has left the group.
  void keep(std::shared_ptr<Memory> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
  }

  /// From the one rank that makes a shared object to all that use it: `leave` gives its number
  /// away, `takers` times `take` gives it out.
  std::uint64_t leave(std::shared_ptr<const void> object, int takers) {
    const std::lock_guard lock(mutex_);
    left_[next_left_] = {std::move(object), takers};
    return next_left_++;
  }
  std::shared_ptr<const void> take(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = left_.find(number);
    std::shared_ptr<const void> object = found->second.first;
    if (--found->second.second == 0) left_.erase(found);
    return object;
  }

 private:
  const std::shared_ptr<InProcessHub> hub_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<Pair>> pairs_;
  std::map<std::uint64_t, std::pair<std::shared_ptr<const void>, int>> left_;
  std::uint64_t next_left_ = 0;
  std::vector<std::shared_ptr<Memory>> kept_;
};

// What peers may be reading outlives the rank that allocated it: the group keeps it until all have
// left.
class KeptMemory final : public Memory {
 public:
  explicit KeptMemory(std::shared_ptr<Memory> memory)
      : Memory(memory->data(), memory->size()), memory_(std::move(memory)) {}

 private:
  std::shared_ptr<Memory> memory_;
};

class ThreadsCommunicator final : public GroupCommunicator {
 public:
  ThreadsCommunicator(std::shared_ptr<ThreadsGroup> group, int rank)
      : GroupCommunicator(group, rank, make_in_process_control(group->hub(), rank), "threads"),
        group_(std::move(group)) {}

  void depart() override { group_->alarm().depart(group_->name(rank())); }
  std::shared_ptr<Communicator> split(int color, int key) override;

  std::unique_ptr<Memory> allocate(std::size_t bytes) override {
    std::shared_ptr<Memory> memory = allocate_host(bytes);
    group_->keep(memory);
    return std::make_unique<KeptMemory>(std::move(memory));
  }

 protected:
  std::shared_ptr<const ShardTable> exchange_shards(const void* shard, std::size_t bytes) override;

 private:
  const std::shared_ptr<ThreadsGroup> group_;
};

std::shared_ptr<const ShardTable> ThreadsCommunicator::exchange_shards(const void* shard,
                                                                       std::size_t bytes) {
  struct Record {
    const void* shard;
    std::size_t bytes;
  };
  const Control::Combine combine = [this](std::span<const Bytes> records, Bytes& result) {
    const auto owners = std::make_shared<std::vector<std::unique_ptr<ShardOwner>>>();
    auto table = std::make_shared<ShardTable>();
    table->bytes = read_plain<Record>(records[0]).bytes;
    table->one_sided = direct();
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      const auto record = read_plain<Record>(records[rank]);
      if (record.bytes != table->bytes) {
        refuse_sizes(table->bytes, static_cast<int>(rank), record.bytes);
      }
      table->shards.push_back(record.shard);
      table->owners.push_back(owners->emplace_back(std::make_unique<ShardOwner>()).get());
    }
    table->memory = owners;
    result = plain_record(group_->leave(std::move(table), size()));
  };
  Bytes result;
  control().fold("share", plain_record(Record{shard, bytes}), combine, result, "share");
  return std::static_pointer_cast<const ShardTable>(
      group_->take(read_plain<std::uint64_t>(result)));
}

std::shared_ptr<Communicator> ThreadsCommunicator::split(int color, int key) {
  struct Seat {
    std::uint64_t group;
    int rank;
  };
  const Control::Combine combine = [this](std::span<const Bytes> records, Bytes& result) {
    std::vector<SplitWish> wishes;
    for (const Bytes& record : records) wishes.push_back(read_plain<SplitWish>(record));
    std::vector<Seat> seats(records.size());
    for (const std::vector<int>& part : split_parts(wishes)) {
      std::vector<int> names;
      for (const int rank : part) names.push_back(group_->name(rank));
      const auto number = group_->leave(
          std::make_shared<ThreadsGroup>(names, group_->stream_mode(), group_->shared_alarm()),
          static_cast<int>(part.size()));
      for (std::size_t i = 0; i < part.size(); ++i) {
        seats[static_cast<std::size_t>(part[i])] = {number, static_cast<int>(i)};
      }
    }
    RecordWriter(result).put_list(seats);
  };
  Bytes result;
  control().fold("split", plain_record(SplitWish{color, key}), combine, result, "split");
  std::vector<Seat> seats;
  RecordReader(result).get_list(seats);
  const Seat seat = seats[static_cast<std::size_t>(rank())];
  auto group = std::const_pointer_cast<ThreadsGroup>(
      std::static_pointer_cast<const ThreadsGroup>(group_->take(seat.group)));
  return std::make_shared<ThreadsCommunicator>(std::move(group), seat.rank);
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_threads(int ranks, const ThreadsOptions& options) {
  if (ranks < 1 || ranks > kMostNear) {
    throw InvalidArgument(fmt::format("{} ranks as threads: expected 1 to {}", ranks, kMostNear));
  }
  operation_timeout();  // throws here, rather than in the first wait, for what is not a number
  std::vector<int> names(static_cast<std::size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  const auto group = std::make_shared<ThreadsGroup>(
      std::move(names), stream_mode_from("RATION_THREADS").value_or(options.mode),
      std::make_shared<Alarm>(ranks));
  std::vector<std::shared_ptr<Communicator>> ends;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(std::make_shared<ThreadsCommunicator>(group, rank));
  }
  return ends;
}

}  // namespace ration
