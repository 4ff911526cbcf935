#include "comm/processes/processes.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/collectives/group_communicator.hpp"
#include "comm/processes/host.hpp"
#include "comm/processes/shared_group.hpp"
#include "core/log.hpp"
#include "core/record.hpp"

namespace ration {
namespace {

/// What a process has for all its groups.
struct ProcessJob {
  std::shared_ptr<Alarm> alarm;
  std::shared_ptr<Star> star;
  std::shared_ptr<Messages> messages;
};

class ProcessCommunicator final : public GroupCommunicator {
 public:
  ProcessCommunicator(std::shared_ptr<SharedGroup> group, int rank, ProcessJob job,
                      std::unique_ptr<Control> control)
      : GroupCommunicator(group, rank, std::move(control), job.messages->name()),
        job_(std::move(job)),
        group_(std::move(group)) {}

  void depart() override { job_.star->depart(); }
  std::shared_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Memory> allocate(std::size_t bytes) override { return group_->allocate(bytes); }

 protected:
  std::shared_ptr<const ShardTable> exchange_shards(const void* shard, std::size_t bytes) override;

 private:
  const ProcessJob job_;
  const std::shared_ptr<SharedGroup> group_;
};

std::shared_ptr<const ShardTable> ProcessCommunicator::exchange_shards(const void* shard,
                                                                       std::size_t bytes) {
  struct Record {
    std::uint64_t bytes;
    Place shard;
    Place owner;
  };
  const bool all_near = group_->far().empty();
  std::shared_ptr<Memory> memory = all_near && size() > 1 ? group_->allocate(sizeof(ShardOwner))
                                                          : allocate_host(sizeof(ShardOwner));
  auto* owner = new (memory->data()) ShardOwner(size() > 1);
  const Record mine{bytes, group_->place(shard, bytes), group_->place(owner, sizeof *owner)};
  const Control::Combine combine = [this](std::span<const Bytes> records, Bytes& result) {
    std::vector<Record> all;
    for (const Bytes& record : records) all.push_back(read_plain<Record>(record));
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].bytes != all[0].bytes) {
        refuse_sizes(all[0].bytes, static_cast<int>(rank), all[rank].bytes);
      }
    }
    RecordWriter(result).put_list(all);
  };
  Bytes result;
  control().fold("share", plain_record(mine), combine, result, "share");
  std::vector<Record> all;
  RecordReader(result).get_list(all);

  auto table = std::make_shared<ShardTable>();
  table->bytes = bytes;
  table->memory =
      std::make_shared<std::pair<std::shared_ptr<Memory>, std::shared_ptr<SharedGroup>>>(
          std::move(memory), group_);
  table->owners.resize(all.size());
  table->shards.resize(all.size());
  table->owners[index_of(rank())] = owner;
  table->shards[index_of(rank())] = shard;
  table->one_sided =
      direct() && all_near && std::all_of(all.begin(), all.end(), [&](const Record& record) {
        return size() == 1 || record.shard.readable();
      });
  if (!table->one_sided) return table;
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    if (peer == index_of(rank())) continue;
    table->shards[peer] = group_->find(all[peer].shard);
    table->owners[peer] =
        static_cast<ShardOwner*>(const_cast<void*>(group_->find(all[peer].owner)));
  }
  return table;
}

std::shared_ptr<Communicator> ProcessCommunicator::split(int color, int key) {
  struct Record {
    SplitWish wish;
    IndexPool::Set used;
  };
  struct Seat {
    std::uint64_t group;
    std::uint32_t index;
    std::int32_t part;
  };
  const Control::Combine combine = [this](std::span<const Bytes> records, Bytes& result) {
    std::vector<SplitWish> wishes;
    for (const Bytes& record : records) wishes.push_back(read_plain<Record>(record).wish);
    std::vector<Seat> seats(records.size());
    std::vector<int> order;
    std::int32_t number = 0;
    for (const std::vector<int>& part : split_parts(wishes)) {
      IndexPool::Set used;
      for (const int rank : part) used |= read_plain<Record>(records[index_of(rank)]).used;
      std::uint32_t index = 0;
      while (index < IndexPool::kIndices && used.test(index)) ++index;
      if (index == IndexPool::kIndices) {
        throw InvalidArgument(
            fmt::format("split: a process is in {} groups already; let go of "
                        "groups that are no longer used",
                        IndexPool::kIndices));
      }
      const Seat seat{job_.star->new_group(), index, number++};
      for (const int rank : part) {
        seats[index_of(rank)] = seat;
        order.push_back(rank);
      }
    }
    RecordWriter writer(result);
    writer.put_list(seats);
    writer.put_list(order);
  };
  Bytes result;
  control().fold("split", plain_record(Record{{color, key}, group_->indices()->used()}), combine,
                 result, "split");
  std::vector<Seat> seats;
  std::vector<int> order;
  RecordReader reader(result);
  reader.get_list(seats);
  reader.get_list(order);

  const Seat& mine = seats[index_of(rank())];
  SharedGroup::Seat seat{.rank = 0, .names = {}, .near = {}, .index = mine.index};
  for (const int member : order) {
    if (seats[index_of(member)].part != mine.part) continue;
    const int place = static_cast<int>(seat.names.size());
    if (member == rank()) seat.rank = place;
    if (group_->is_near(member)) seat.near.push_back(place);
    seat.names.push_back(group_->name(member));
  }
  std::unique_ptr<Control> control = job_.star->control(mine.group, seat.names, seat.rank);
  const int place = seat.rank;
  auto group = SharedGroup::make(seat, *control, group_->stream_mode(), job_.alarm, job_.messages,
                                 group_->indices(), group_.get());
  return std::make_shared<ProcessCommunicator>(std::move(group), place, job_, std::move(control));
}

// What each rank says of itself before there is a communicator.
struct Introduction {
  std::string host;
  StreamMode stream_mode;
};

std::vector<Introduction> exchange(Control& control, const Introduction& own) {
  Bytes record;
  RecordWriter writer(record);
  writer.put_text(own.host);
  writer.put(own.stream_mode);
  Bytes result;
  control.fold("hosts", record, concatenate, result, "comparison of hosts");
  std::vector<Introduction> all;
  RecordReader reader(result);
  while (!reader.at_end()) {
    Introduction& introduction = all.emplace_back();
    introduction.host = reader.get_text();
    introduction.stream_mode = reader.get<StreamMode>();
  }
  return all;
}

// Ranks of one host, by the order in which it is first named; no more together than can be near.
std::vector<int> near_ranks(const std::vector<Introduction>& ranks, int rank) {
  std::vector<int> same;
  std::size_t own = 0;
  const std::string& host = ranks[index_of(rank)].host;
  for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
    if (peer == index_of(rank)) own = same.size();
    if (peer == index_of(rank) || (!host.empty() && ranks[peer].host == host)) {
      same.push_back(static_cast<int>(peer));
    }
  }
  const std::size_t begin = own / kMostNear * kMostNear;
  const std::size_t end = std::min(same.size(), begin + kMostNear);
  return {same.begin() + static_cast<std::ptrdiff_t>(begin),
          same.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::string own_host() {
  const char* value = std::getenv("RATION_SHARED_MEMORY");
  const std::string_view text = value ? value : "";
  if (text == "off") return "";
  if (!text.empty() && text != "on") {
    throw InvalidArgument(fmt::format("RATION_SHARED_MEMORY=\"{}\": expected on or off", text));
  }
  return host_identity();
}

// Without knowing where the others are.
StreamMode chosen_mode(const ProcessesOptions& options, int size) {
  if (options.stream_mode) return *options.stream_mode;
  if (const auto mode = stream_mode_from("RATION_PROCESSES")) return *mode;
  const unsigned cores = std::thread::hardware_concurrency();
  return static_cast<unsigned>(size) >= cores ? StreamMode::direct : StreamMode::streams;
}

}  // namespace

std::shared_ptr<Communicator> make_processes(std::shared_ptr<Star> star,
                                             std::shared_ptr<Alarm> alarm,
                                             const MakeMessages& make_messages,
                                             const ProcessesOptions& options) {
  const int rank = star->rank();
  const int size = star->size();
  std::vector<int> names(index_of(size));
  std::iota(names.begin(), names.end(), 0);
  std::unique_ptr<Control> control = star->control(0, names, rank);
  const ProcessJob job{std::move(alarm), std::move(star), make_messages(*control)};
  const std::vector<Introduction> ranks =
      exchange(*control, {.host = options.host ? *options.host : own_host(),
                          .stream_mode = chosen_mode(options, size)});
  SharedGroup::Seat seat{
      .rank = rank, .names = std::move(names), .near = near_ranks(ranks, rank), .index = 0};
  // Ranks must come to the same: rank 0's choice holds. Messages are best left to threads of their
  // own, unless it was asked otherwise.
  const bool one_host = seat.near.size() == index_of(size);
  const StreamMode stream_mode =
      one_host || options.stream_mode ? ranks[0].stream_mode : StreamMode::streams;
  auto group = SharedGroup::make(seat, *control, stream_mode, job.alarm, job.messages,
                                 std::make_shared<IndexPool>(), nullptr);
  log::debug("{} processes, {} on this host, messages by {}, {}", size, group->near().size(),
             job.messages->name(), stream_mode == StreamMode::direct ? "direct" : "streams");
  return std::make_shared<ProcessCommunicator>(std::move(group), rank, job, std::move(control));
}

}  // namespace ration
