#include "comm/collectives/shards.hpp"

#include <fmt/format.h>

#include "comm/collectives/work.hpp"
#include "core/trace.hpp"

namespace ration {

void ReadableShards::publish() {
  if (!table_->one_sided) return;
  ShardOwner& self = *table_->owners[rank_];
  self.epoch.fetch_add(1, std::memory_order_release);
  self.signal.notify();
}

ShardGatherTask::ShardGatherTask(Waiter waiter, const Operation& operation,
                                 std::shared_ptr<const ShardTable> table, std::uint64_t epoch,
                                 const char* stream)
    : waiter_(std::move(waiter)),
      operation_(operation),
      table_(std::move(table)),
      epoch_(epoch),
      stream_(stream) {}

bool ShardGatherTask::operator()(bool may_block) {
  const auto published = [&](int owner) {
    return table_->owners[static_cast<std::size_t>(owner)]->epoch.load(std::memory_order_acquire) >=
           epoch_;
  };
  const auto what = [&] {
    return fmt::format("{} of epoch {}", describe(operation_, epoch_), epoch_);
  };
  const auto signal_of = [&](int owner) -> Signal& {
    return table_->owners[static_cast<std::size_t>(owner)]->signal;
  };
  const std::size_t bytes = operation_.count * size_of(operation_.type);
  for (;;) {
    int missing = -1;
    for (int i = 1; i <= waiter_.size(); ++i) {  // each rank begins elsewhere; the own shard last
      const int owner = (waiter_.rank() + i) % waiter_.size();
      const auto o = static_cast<std::size_t>(owner);
      if (copied_[o]) continue;
      if (!published(owner)) {
        if (missing < 0) missing = owner;
        continue;
      }
      const trace::Span span("all_gather", operation_.tag, stream_);
      const Alarm::Reading reading(waiter_.group().alarm());
      work::copy(work::at(operation_.recv, o * operation_.count, operation_.type),
                 table_->shards[o], bytes);
      copied_.set(o);
    }
    if (missing < 0) return true;
    if (!waiter_.await(missing, published, what, may_block, signal_of, Waiter::nobody_else))
      return false;
  }
}

}  // namespace ration
