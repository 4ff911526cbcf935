#include "comm/threads/threads.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/threads/collective.hpp"
#include "comm/threads/group.hpp"
#include "comm/threads/pair.hpp"
#include "comm/threads/shards.hpp"
#include "comm/validate.hpp"
#include "device/host/host_stream.hpp"

namespace ration {
namespace {

// A Sequence is the number of a collective, or one of these.
constexpr Sequence kNothingToRelease = ~Sequence{0};
constexpr Sequence kPair = Sequence{1} << 63;  // with the receiver and the number of a send
constexpr int kPeerShift = 48;

template <class T>
T read(const Bytes& record) {
  T value;
  std::memcpy(&value, record.data(), sizeof value);
  return value;
}

template <class T>
Bytes record_of(const T& value) {
  Bytes record(sizeof value);
  std::memcpy(record.data(), &value, sizeof value);
  return record;
}

// What peers may be reading outlives the rank that allocated it: the group keeps it until all have
// left.
class KeptMemory final : public Memory {
 public:
  explicit KeptMemory(std::shared_ptr<Memory> memory)
      : Memory(memory->data(), memory->size()), memory_(std::move(memory)) {}

 private:
  std::shared_ptr<Memory> memory_;
};

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(std::shared_ptr<ThreadsGroup> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        control_(make_in_process_control(group_->hub(), rank)),
        sent_(static_cast<std::size_t>(group_->size())),
        received_(static_cast<std::size_t>(group_->size())) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view backend() const override { return "threads"; }
  [[nodiscard]] Control& control() override { return *control_; }
  [[nodiscard]] std::uint64_t sent_bytes() const override {
    return sent_bytes_.load(std::memory_order_relaxed);
  }

  void depart() override { group_->alarm().depart(group_->name(rank_)); }

  Sequence submit(Stream& stream, const Operation& asked) override {
    validate(asked, rank_, size());
    const Operation operation = normalized(asked);
    auto& host = static_cast<HostStream&>(stream);
    switch (operation.kind) {
      case OperationKind::send:
      case OperationKind::recv:
        return submit_pair(host, operation);
      case OperationKind::all_gather:
        count_bytes(operation);
        if (operation.shards) return submit_shards(host, operation);
        break;
      case OperationKind::reduce_scatter:
      case OperationKind::all_reduce:
        count_bytes(operation);
        break;
      default:
        break;
    }
    return submit_collective(host, operation);
  }

  void release(Stream& stream, Sequence sequence) override {
    if (sequence == kNothingToRelease) return;
    auto& host = static_cast<HostStream&>(stream);
    if (sequence & kPair) {
      const auto peer = static_cast<int>((sequence & ~kPair) >> kPeerShift);
      const Sequence number = sequence & ((Sequence{1} << kPeerShift) - 1);
      host.enqueue(PairReleaseTask({group_, rank_}, peer, number));
    } else {
      host.enqueue(ReleaseTask({group_, rank_}, sequence));
    }
  }

  std::unique_ptr<SharedShards> share(const void* shard, std::size_t bytes) override;
  std::shared_ptr<Communicator> split(int color, int key) override;

  std::unique_ptr<Stream> make_stream(const char* name, std::size_t tasks) override {
    return std::make_unique<HostStream>(
        direct() ? HostStream::Mode::deferred : HostStream::Mode::worker, name, tasks);
  }

  std::unique_ptr<Memory> allocate(std::size_t bytes) override {
    std::shared_ptr<Memory> memory = allocate_host(bytes);
    group_->keep(memory);
    return std::make_unique<KeptMemory>(std::move(memory));
  }

 private:
  [[nodiscard]] bool direct() const { return group_->mode() == ThreadsOptions::Mode::direct; }

  void count_bytes(const Operation& operation) {
    sent_bytes_.fetch_add(sent_by(operation, size()), std::memory_order_relaxed);
  }

  Sequence submit_collective(HostStream& stream, const Operation& operation) {
    const Sequence number = next_++;
    stream.enqueue(CollectiveTask({group_, rank_}, operation, number, stream.name()));
    return Slot::leaves_send_in_reach(operation, rank_) ? number : kNothingToRelease;
  }

  Sequence submit_pair(HostStream& stream, const Operation& operation) {
    const auto peer = static_cast<std::size_t>(operation.peer);
    const bool sends = operation.kind == OperationKind::send;
    const std::uint64_t number = sends ? sent_[peer]++ : received_[peer]++;
    stream.enqueue(PairTask({group_, rank_}, operation, number, stream.name()));
    return sends ? kPair | (static_cast<Sequence>(peer) << kPeerShift) | number : kNothingToRelease;
  }

  Sequence submit_shards(HostStream& stream, const Operation& operation) {
    const auto& shards = static_cast<const ThreadsShards&>(*operation.shards);
    if (operation.count * size_of(operation.type) > shards.table()->bytes) {
      throw InvalidArgument(fmt::format("rank {}: gather of \"{}\" ({} x {}): a shard has {} bytes",
                                        rank_, operation.tag, name_of(operation.type),
                                        operation.count, shards.table()->bytes));
    }
    if (!direct()) {
      Operation matched = operation;
      matched.send = shards.own();
      matched.shards = nullptr;
      return submit_collective(stream, matched);
    }
    stream.enqueue(
        ShardGatherTask({group_, rank_}, operation, shards.table(), shards.epoch(), stream.name()));
    return kNothingToRelease;
  }

  const std::shared_ptr<ThreadsGroup> group_;
  const int rank_;
  const std::unique_ptr<Control> control_;
  Sequence next_ = 0;
  std::vector<std::uint64_t> sent_;      // to each peer
  std::vector<std::uint64_t> received_;  // from each peer
  std::atomic<std::uint64_t> sent_bytes_{0};
};

std::unique_ptr<SharedShards> ThreadsCommunicator::share(const void* shard, std::size_t bytes) {
  struct Record {
    const void* shard;
    std::size_t bytes;
  };
  const Control::Combine combine = [this](std::span<const Bytes> records, Bytes& result) {
    auto table = std::make_shared<ShardTable>();
    table->bytes = read<Record>(records[0]).bytes;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      const auto record = read<Record>(records[rank]);
      if (record.bytes != table->bytes) {
        throw InvalidArgument(fmt::format(
            "shared shards are of one size: rank {} has {} bytes, rank {} has {}", group_->name(0),
            table->bytes, group_->name(static_cast<int>(rank)), record.bytes));
      }
      table->owners.push_back(std::make_unique<ShardTable::Owner>());
      table->owners.back()->shard = record.shard;
    }
    result = record_of(group_->leave(std::move(table), size()));
  };
  Bytes result;
  control_->fold("share", record_of(Record{shard, bytes}), combine, result, "share");
  auto table = std::static_pointer_cast<ShardTable>(group_->take(read<std::uint64_t>(result)));
  return std::make_unique<ThreadsShards>(std::move(table), rank_, direct());
}

std::shared_ptr<Communicator> ThreadsCommunicator::split(int color, int key) {
  struct Wish {
    int color;
    int key;
  };
  struct Place {
    std::uint64_t group;
    int rank;
  };
  const Control::Combine combine = [this](std::span<const Bytes> records, Bytes& result) {
    std::vector<std::tuple<int, int, int>> order;  // colour, key, rank here
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      const auto wish = read<Wish>(records[rank]);
      order.emplace_back(wish.color, wish.key, static_cast<int>(rank));
    }
    std::sort(order.begin(), order.end());
    std::vector<Place> places(records.size());
    for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      std::vector<int> names;
      while (end < order.size() && std::get<0>(order[end]) == std::get<0>(order[begin])) {
        names.push_back(group_->name(std::get<2>(order[end++])));
      }
      const int members = static_cast<int>(names.size());
      const auto number = group_->leave(
          std::make_shared<ThreadsGroup>(std::move(names), group_->mode(), group_->shared_alarm()),
          members);
      for (std::size_t i = begin; i < end; ++i) {
        places[static_cast<std::size_t>(std::get<2>(order[i]))] = {number,
                                                                   static_cast<int>(i - begin)};
      }
    }
    result.resize(places.size() * sizeof(Place));
    std::memcpy(result.data(), places.data(), result.size());
  };
  Bytes result;
  control_->fold("split", record_of(Wish{color, key}), combine, result, "split");
  Place place{};
  std::memcpy(&place, result.data() + static_cast<std::size_t>(rank_) * sizeof place, sizeof place);
  auto group = std::static_pointer_cast<ThreadsGroup>(group_->take(place.group));
  return std::make_shared<ThreadsCommunicator>(std::move(group), place.rank);
}

ThreadsOptions::Mode chosen_mode(const ThreadsOptions& options) {
  const char* value = std::getenv("RATION_THREADS");
  const std::string_view text = value ? value : "";
  if (text.empty()) return options.mode;
  if (text == "streams") return ThreadsOptions::Mode::streams;
  if (text == "direct") return ThreadsOptions::Mode::direct;
  throw InvalidArgument(fmt::format("RATION_THREADS=\"{}\": expected direct or streams", text));
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_threads(int ranks, const ThreadsOptions& options) {
  if (ranks < 1 || ranks > kMostThreads) {
    throw InvalidArgument(
        fmt::format("{} ranks as threads: expected 1 to {}", ranks, kMostThreads));
  }
  operation_timeout();  // throws here, rather than in the first wait, for what is not a number
  std::vector<int> names(static_cast<std::size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  const auto group = std::make_shared<ThreadsGroup>(std::move(names), chosen_mode(options),
                                                    std::make_shared<Alarm>(ranks));
  std::vector<std::shared_ptr<Communicator>> ends;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(std::make_shared<ThreadsCommunicator>(group, rank));
  }
  return ends;
}

}  // namespace ration
