#include "comm/processes/shared_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/log.hpp"
#include "core/record.hpp"

namespace ration {
namespace {

class SharedMemory final : public Memory {
 public:
  SharedMemory(std::shared_ptr<Arena> arena, std::byte* data, std::size_t bytes)
      : Memory(data, bytes), arena_(std::move(arena)) {}

 private:
  std::shared_ptr<Arena> arena_;
};

}  // namespace

std::size_t SharedGroup::reserved_bytes(std::size_t near) {
  return near * sizeof(Member) + near * near * sizeof(Pair);
}

SharedGroup::SharedGroup(const Seat& seat, StreamMode stream_mode, std::shared_ptr<Alarm> alarm,
                         std::shared_ptr<Messages> messages, std::shared_ptr<IndexPool> indices,
                         const SharedGroup* parent)
    : RankGroup(seat.names, stream_mode, std::move(alarm)),
      messages_(std::move(messages)),
      indices_(std::move(indices)),
      index_(seat.index),
      near_index_(seat.names.size()) {
  if (parent) arenas_ = parent->arenas_;
  indices_->take(index_);
  set_messages(messages_.get(), index_);
}

SharedGroup::~SharedGroup() {
  indices_->give_back(index_);
}

std::shared_ptr<SharedGroup> SharedGroup::make(const Seat& seat, Control& control,
                                               StreamMode stream_mode, std::shared_ptr<Alarm> alarm,
                                               std::shared_ptr<Messages> messages,
                                               std::shared_ptr<IndexPool> indices,
                                               const SharedGroup* parent) {
  std::shared_ptr<SharedGroup> group(new SharedGroup(
      seat, stream_mode, std::move(alarm), std::move(messages), std::move(indices), parent));
  if (group->open_arena(seat, control)) {
    group->use_arena(seat.near, seat.rank);
  } else {
    group->use_own_slots(seat.rank);
  }
  // Nobody posts before all can see it, nobody leaves before all have opened.
  Bytes result;
  control.fold(
      "memory", {}, [](std::span<const Bytes>, Bytes&) {}, result, "shared memory");
  return group;
}

bool SharedGroup::open_arena(const Seat& seat, Control& control) {
  const std::size_t reserved = reserved_bytes(seat.near.size());
  const bool leads = seat.near.front() == seat.rank;
  std::shared_ptr<Arena> arena;
  Arena::Address own;
  if (leads && seat.near.size() > 1) {
    arena = Arena::create(reserved);
    own = arena->address();
  }
  Bytes result;
  control.fold("memory", plain_record(own), concatenate, result, "shared memory");

  char opened = 1;
  if (!leads) {
    Arena::Address address;
    std::memcpy(&address, result.data() + index_of(seat.near.front()) * sizeof address,
                sizeof address);
    try {
      arena = Arena::open(address, reserved);
    } catch (const Error& error) {
      static std::atomic<bool> said{false};
      if (!said.exchange(true)) {
        log::warning(
            "rank {}: memory cannot be shared with rank {} of this host, messages are used: {}",
            name(seat.rank), name(seat.near.front()), error.what());
      }
      opened = 0;
    }
  }
  control.fold("memory", Bytes(1, std::byte(opened)), concatenate, result, "shared memory");
  const bool all = std::all_of(seat.near.begin(), seat.near.end(),
                               [&](int rank) { return result.at(index_of(rank)) == std::byte{1}; });
  if (all && arena) arenas_.push_back(std::move(arena));
  return all && seat.near.size() > 1;
}

void SharedGroup::use_arena(const std::vector<int>& near, int rank) {
  // Each makes its own. (Of pairs, most of which are never used, what the file holds at first will
  // do: zeros.)
  auto* members = reinterpret_cast<Member*>(arenas_.back()->reserved());
  std::vector<Member*> by_rank(names().size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    near_index_[index_of(near[i])] = i;
    by_rank[index_of(near[i])] = &members[i];
    if (near[i] == rank) new (&members[i]) Member(true);
  }
  set_members(std::move(by_rank));
}

void SharedGroup::use_own_slots(int rank) {
  alone_ = std::make_unique<Member>(false);
  std::vector<Member*> by_rank(names().size());
  by_rank[index_of(rank)] = alone_.get();
  set_members(std::move(by_rank));
}

Pair& SharedGroup::pair(int sender, int receiver) {
  const std::size_t count = near().size();
  auto* pairs = reinterpret_cast<Pair*>(arenas_.back()->reserved() + count * sizeof(Member));
  return pairs[near_index_[index_of(sender)] * count + near_index_[index_of(receiver)]];
}

Place SharedGroup::place(const void* data, std::size_t bytes) const {
  if (near().size() == 1) return {};
  const auto* begin = static_cast<const std::byte*>(data);
  for (std::size_t i = arenas_.size(); i-- > 0;) {
    if (const Arena::Segment* segment = arenas_[i]->find(begin, bytes)) {
      return {.arena = static_cast<std::uint32_t>(i),
              .segment = segment->begin,
              .length = segment->length,
              .offset = static_cast<std::uint64_t>(begin - segment->data)};
    }
  }
  return {};
}

const void* SharedGroup::find(const Place& place) const {
  return arenas_[place.arena]->map(place.segment, place.length) + place.offset;
}

std::unique_ptr<Memory> SharedGroup::allocate(std::size_t bytes) {
  if (near().size() == 1 || bytes == 0) return allocate_host(bytes);
  const Arena::Segment segment = arenas_.back()->allocate(bytes);
  return std::make_unique<SharedMemory>(arenas_.back(), segment.data, bytes);
}

}  // namespace ration
