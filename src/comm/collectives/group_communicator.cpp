#include "comm/collectives/group_communicator.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/collectives/collective.hpp"
#include "comm/validate.hpp"

namespace ration {
namespace {

// A Sequence is the number of a collective, or one of these.
constexpr Sequence kNothingToRelease = ~Sequence{0};
constexpr Sequence kPair = Sequence{1} << 63;  // with the receiver and the number of a send
constexpr int kPeerShift = 48;

}  // namespace

GroupCommunicator::GroupCommunicator(std::shared_ptr<RankGroup> group, int rank,
                                     std::unique_ptr<Control> control, std::string_view backend)
    : group_(std::move(group)),
      rank_(rank),
      control_(std::move(control)),
      backend_(backend),
      sent_(static_cast<std::size_t>(group_->size())),
      received_(static_cast<std::size_t>(group_->size())) {}

Sequence GroupCommunicator::submit(Stream& stream, const Operation& asked) {
  validate(asked, rank_, size());
  const Operation operation = normalized(asked);
  auto& host = static_cast<HostStream&>(stream);
  switch (operation.kind) {
    case OperationKind::send:
    case OperationKind::recv:
      return submit_pair(host, operation);
    case OperationKind::reduce_scatter:
    case OperationKind::all_reduce:
    case OperationKind::all_gather:
      sent_bytes_.fetch_add(sent_by(operation, size()), std::memory_order_relaxed);
      break;
    default:
      break;
  }
  return operation.shards ? submit_shards(host, operation) : submit_collective(host, operation);
}

void GroupCommunicator::release(Stream& stream, Sequence sequence) {
  if (sequence == kNothingToRelease) return;
  auto& host = static_cast<HostStream&>(stream);
  if (sequence & kPair) {
    const auto peer = static_cast<int>((sequence & ~kPair) >> kPeerShift);
    const Sequence number = sequence & ((Sequence{1} << kPeerShift) - 1);
    host.enqueue(PairReleaseTask({group_, rank_}, outbox_, peer, number));
  } else {
    host.enqueue(ReleaseTask({group_, rank_}, sequence));
  }
}

std::unique_ptr<SharedShards> GroupCommunicator::share(const void* shard, std::size_t bytes) {
  return std::make_unique<ReadableShards>(exchange_shards(shard, bytes), rank_);
}

void GroupCommunicator::refuse_sizes(std::size_t bytes, int other, std::size_t other_bytes) const {
  throw InvalidArgument(
      fmt::format("shared shards are of one size: rank {} has {} bytes, rank {} has {}",
                  group_->name(0), bytes, group_->name(other), other_bytes));
}

std::unique_ptr<Stream> GroupCommunicator::make_stream(const char* name, std::size_t tasks) {
  return std::make_unique<HostStream>(
      direct() ? HostStream::Mode::deferred : HostStream::Mode::worker, name, tasks);
}

Sequence GroupCommunicator::submit_collective(HostStream& stream, const Operation& operation) {
  const Sequence number = next_++;
  stream.enqueue(CollectiveTask({group_, rank_}, operation, number, stream.name()));
  return ReleaseTask::is_needed(operation, rank_) ? number : kNothingToRelease;
}

Sequence GroupCommunicator::submit_pair(HostStream& stream, const Operation& operation) {
  const auto peer = static_cast<std::size_t>(operation.peer);
  const bool sends = operation.kind == OperationKind::send;
  const std::uint64_t number = sends ? sent_[peer]++ : received_[peer]++;
  stream.enqueue(PairTask({group_, rank_}, outbox_, operation, number, stream.name()));
  return sends ? kPair | (static_cast<Sequence>(peer) << kPeerShift) | number : kNothingToRelease;
}

Sequence GroupCommunicator::submit_shards(HostStream& stream, const Operation& operation) {
  const auto& shards = static_cast<const ReadableShards&>(*operation.shards);
  if (operation.count * size_of(operation.type) > shards.table()->bytes) {
    throw InvalidArgument(fmt::format("rank {}: gather of \"{}\" ({} x {}): a shard has {} bytes",
                                      rank_, operation.tag, name_of(operation.type),
                                      operation.count, shards.table()->bytes));
  }
  if (!shards.one_sided()) {
    Operation matched = operation;
    matched.send = shards.own();
    matched.shards = nullptr;
    return submit_collective(stream, matched);
  }
  stream.enqueue(
      ShardGatherTask({group_, rank_}, operation, shards.table(), shards.epoch(), stream.name()));
  return kNothingToRelease;
}

std::vector<std::vector<int>> split_parts(const std::vector<SplitWish>& wishes) {
  std::vector<int> order(wishes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto of = [&](int rank) {
    const SplitWish& wish = wishes[static_cast<std::size_t>(rank)];
    return std::tuple(wish.color, wish.key, rank);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return of(a) < of(b); });
  std::vector<std::vector<int>> parts;
  for (const int rank : order) {
    if (parts.empty() || wishes[static_cast<std::size_t>(parts.back()[0])].color !=
                             wishes[static_cast<std::size_t>(rank)].color) {
      parts.emplace_back();
    }
    parts.back().push_back(rank);
  }
  return parts;
}

}  // namespace ration
