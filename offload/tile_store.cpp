#include "offload/tile_store.hpp"

#include <algorithm>
#include <utility>

#include <ration/error.hpp>

#include "io/file.hpp"

namespace ration::offload {

std::size_t padded(std::size_t bytes) {
  return (bytes + io::kDirectAlignment - 1) / io::kDirectAlignment * io::kDirectAlignment;
}

/// One walk: which tiles come when, and who must leave for them.
class TileStore::Walk {
 public:
  Walk(TileStore& store, Use use, bool backward) : store_(store), use_(use), backward_(backward) {
    for (std::size_t slot = 0; slot < store_.slots_.size(); ++slot) {
      // What the walk before has sent away last is still here.
      if (store_.slots_[slot].transit == Transit::out) store_.settle(slot);
      store_.slots_[slot].visited = false;
    }
    for (const Place& place : store_.places_) absent_ += place.slot == kNone ? 1 : 0;
  }

  void run(const Visit& visit) {
    for (std::size_t turn = 0; turn < store_.places_.size(); ++turn) {
      fetch(turn);
      const std::size_t tile = at(turn);
      const std::size_t slot = store_.places_[tile].slot;
      store_.settle(slot);
      if (use_ != Use::read) store_.slots_[slot].dirty = true;
      visit(tile, store_.memory_ + slot * store_.slot_bytes_);
      store_.slots_[slot].visited = true;
      if (absent_ > leaving()) leave(slot);
    }
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t turn) const {
    return backward_ ? store_.places_.size() - 1 - turn : turn;
  }
  [[nodiscard]] bool is_free(std::size_t slot) const { return store_.slots_[slot].tile == kNone; }

  // Slots that wait for no visit: free, or on their way out.
  [[nodiscard]] std::size_t leaving() const {
    return static_cast<std::size_t>(std::count_if(
        store_.slots_.begin(), store_.slots_.end(),
        [](const Slot& slot) { return slot.tile == kNone || slot.transit == Transit::out; }));
  }

  // Brings in as many of the coming tiles as there is room for, and that of `turn` in any case.
  void fetch(std::size_t turn) {
    for (; next_ < store_.places_.size(); ++next_) {
      Place& place = store_.places_[at(next_)];
      if (place.slot != kNone) continue;
      const std::size_t slot = room(next_ == turn);
      if (slot == kNone) return;
      store_.slots_[slot] = {.tile = at(next_)};
      place.slot = slot;
      --absent_;
      if (use_ != Use::fill) store_.begin(slot, Transfer::Way::read);
    }
  }

  // A free slot. `needed`: the walk cannot go on without one.
  std::size_t room(bool needed) {
    std::size_t out = kNone;
    for (std::size_t slot = 0; slot < store_.slots_.size(); ++slot) {
      if (store_.slots_[slot].transit == Transit::out && store_.device_->done(slot)) {
        store_.settle(slot);
        store_.release(slot);
      }
      if (is_free(slot)) return slot;
      if (store_.slots_[slot].transit == Transit::out) out = slot;
    }
    if (!needed) return kNone;
    if (out == kNone) {
      out = last();
      if (!store_.slots_[out].visited) ++absent_;
      leave(out);
      if (is_free(out)) return out;
    }
    store_.settle(out);
    store_.release(out);
    return out;
  }

  // Who comes last, or was visited already.
  [[nodiscard]] std::size_t last() const {
    const auto turn_of = [&](const Slot& slot) {
      if (slot.visited) return store_.places_.size();
      return backward_ ? store_.places_.size() - 1 - slot.tile : slot.tile;
    };
    std::size_t found = 0;
    for (std::size_t slot = 1; slot < store_.slots_.size(); ++slot) {
      if (turn_of(store_.slots_[slot]) > turn_of(store_.slots_[found])) found = slot;
    }
    return found;
  }

  void leave(std::size_t slot) {
    store_.settle(slot);
    if (store_.slots_[slot].dirty) {
      store_.begin(slot, Transfer::Way::write);
    } else {
      store_.release(slot);
    }
  }

  TileStore& store_;
  const Use use_;
  const bool backward_;
  std::size_t next_ = 0;    ///< turns before it are in memory or on their way
  std::size_t absent_ = 0;  ///< tiles that are not, of the turns from there on
};

TileStore::TileStore(const std::vector<std::size_t>& tile_bytes, std::size_t slots,
                     std::byte* memory, std::unique_ptr<BlockDevice> device)
    : slots_(slots), memory_(memory), device_(std::move(device)) {
  std::uint64_t offset = 0;
  for (const std::size_t bytes : tile_bytes) {
    places_.push_back({.offset = offset, .bytes = padded(bytes)});
    slot_bytes_ = std::max(slot_bytes_, padded(bytes));
    offset += padded(bytes);
  }
  if (slots < std::min(device_ ? kLeastSlots : places_.size(), places_.size()))
    throw InvalidArgument("offload: three tiles at least must be in memory, without a device all");
}

TileStore::~TileStore() {
  device_.reset();
}

void TileStore::begin(std::size_t slot, Transfer::Way way) {
  const Place& place = places_[slots_[slot].tile];
  if (!device_) return;  // all are in memory, and this one holds nothing yet
  slots_[slot].transit = way == Transfer::Way::read ? Transit::in : Transit::out;
  if (place.bytes == 0) return;
  device_->submit(slot, {.way = way,
                         .offset = place.offset,
                         .data = memory_ + slot * slot_bytes_,
                         .bytes = place.bytes});
  moved_ += place.bytes;
}

void TileStore::settle(std::size_t slot) {
  if (slots_[slot].transit == Transit::none) return;
  device_->wait(slot);
  if (slots_[slot].transit == Transit::out) slots_[slot].dirty = false;
  slots_[slot].transit = Transit::none;
}

void TileStore::release(std::size_t slot) {
  places_[slots_[slot].tile].slot = kNone;
  slots_[slot] = {};
}

void TileStore::walk(Use use, Order order, const Visit& visit) {
  if (failure_) std::rethrow_exception(failure_);
  backward_ = order == Order::alternating && !backward_;
  try {
    Walk(*this, use, backward_).run(visit);
  } catch (const IoError&) {
    failure_ = std::current_exception();
    throw;
  }
}

std::byte* TileStore::hold(std::size_t tile, Use use) {
  if (failure_) std::rethrow_exception(failure_);
  try {
    hand_ = places_[tile].slot != kNone ? places_[tile].slot : bring_in(tile, use);
    settle(hand_);
    if (use != Use::fill && tile + 1 < places_.size()) expect(tile + 1);
  } catch (const IoError&) {
    failure_ = std::current_exception();
    throw;
  }
  if (use != Use::read) slots_[hand_].dirty = true;
  return memory_ + hand_ * slot_bytes_;
}

// The tile that may be held next: its slot is emptied, or it is on its way, when it is.
void TileStore::expect(std::size_t tile) {
  if (places_[tile].slot != kNone) return;
  const std::size_t slot = victim();
  if (slot == hand_) return;
  if (slots_[slot].tile != kNone) {
    if (slots_[slot].transit != Transit::none && !device_->done(slot)) return;
    settle(slot);
    if (slots_[slot].dirty) {
      begin(slot, Transfer::Way::write);
      return;
    }
    release(slot);
  }
  slots_[slot] = {.tile = tile};
  places_[tile].slot = slot;
  begin(slot, Transfer::Way::read);
}

// A free slot, or the one that was given longest ago, roughly.
std::size_t TileStore::victim() const {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].tile == kNone) return slot;
  }
  return (hand_ + 1) % slots_.size();
}

std::size_t TileStore::bring_in(std::size_t tile, Use use) {
  const std::size_t slot = victim();
  if (slots_[slot].tile != kNone) {
    settle(slot);
    if (slots_[slot].dirty) begin(slot, Transfer::Way::write);
    settle(slot);
    release(slot);
  }
  slots_[slot] = {.tile = tile};
  places_[tile].slot = slot;
  if (use != Use::fill) begin(slot, Transfer::Way::read);
  return slot;
}

}  // namespace ration::offload
