#include "engine/gatherer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "core/trace.hpp"
#include "device/operations.hpp"

namespace ration {

Gatherer::Gatherer(Context& context) : c_(context) {}

void Gatherer::prepare() {
  const Layout& layout = c_.layout;
  shares_.clear();
  one_sided_ = true;
  for (int f = 0; f < static_cast<int>(layout.flats.size()); ++f) {
    const FlatInfo& flat = layout.flats[f];
    const FlatArrays& arrays = c_.state->arrays(f);
    auto& share = shares_.emplace_back();
    if (c_.config.stage == 0) continue;  // every rank updates the whole
    share =
        c_.gather->share(arrays.shard, static_cast<std::size_t>(flat.shard) * size_of(flat.dtype));
    one_sided_ = one_sided_ && share->one_sided();
  }
  units_.clear();
  units_.resize(layout.units.size());
  for (UnitState& unit : units_) unit.ready = c_.gather_stream->make_event();
  slots_.clear();
  for (const int entry : c_.state->plan().gather_slots) {
    Slot& slot = slots_.emplace_back();
    slot.memory = c_.state->entry(entry);
    slot.released = c_.compute->make_event();
  }
  // Only units that are gathered within a pass have a turn.
  std::vector<int> gathered;
  for (int u = 0; u < static_cast<int>(layout.units.size()); ++u) {
    if (gathered_in_slot(u)) gathered.push_back(u);
  }
  forward_.reset(gathered);
  evaluation_.reset(gathered);
  std::reverse(gathered.begin(), gathered.end());
  backward_.reset(gathered);
  pass_ = Pass::none;
  open_ = false;
}

bool Gatherer::gathered_in_slot(int unit) const {
  const auto& flats = c_.unit(unit).flats;
  return !flats.empty() && c_.state->plan(flats.front()).gathered_in_slot;
}

CanonicalOrder* Gatherer::order() {
  switch (pass_) {
    case Pass::forward:
      return &forward_;
    case Pass::backward:
      return &backward_;
    case Pass::evaluation:
      return &evaluation_;
    case Pass::none:
      break;
  }
  return nullptr;
}

void Gatherer::begin_pass(Pass pass) {
  join_pass();
  give_back();
  pass_ = pass;
  open_ = pass != Pass::none;
  ++pass_number_;
  if (CanonicalOrder* o = order()) o->begin_pass();
}

// The trainer's memory into which a unit was joined that this rank did not use.
void Gatherer::give_back() {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    UnitState& unit = units_[u];
    if (!c_.unit_memory[u].hooks || unit.held > 0 || !unit.memory) continue;
    c_.gather_stream->synchronize();
    c_.unit_options[u].release(std::exchange(unit.memory, nullptr));
  }
}

void Gatherer::gather(int u) {
  const std::string& name = c_.unit(u).name;
  if (!open_) {
    throw InvalidArgument(fmt::format(
        "rank {}: unit \"{}\": gathered outside a micro-step; call micro_step or evaluation first",
        c_.rank(), name));
  }
  UnitState& unit = units_[u];
  if (!c_.unit(u).keep_whole) {
    if (unit.held > 0) {
      throw InvalidArgument(
          fmt::format("rank {}: unit \"{}\": gathered while a guard of it is alive; use that guard",
                      c_.rank(), name));
    }
    if (unit.asked_in == pass_number_) {
      throw InvalidArgument(
          fmt::format("rank {}: unit \"{}\": gathered twice in one pass; call begin_backward if "
                      "this is the backward, keep the "
                      "first guard, or register the unit with keep_whole",
                      c_.rank(), name));
    }
  }
  if (gathered_in_slot(u)) {
    const trace::Span span("gather", name, "compute");
    if (one_sided_) {
      if (unit.slot < 0 && !unit.memory) fetch(u);
    } else {
      join_until(u);
    }
    // Only now: what was refused for want of a slot may be asked for again.
    unit.asked_in = pass_number_;
    if (pass_ != Pass::evaluation) order()->record(u);
    if (unit.slot >= 0) slots_[unit.slot].held = true;
    c_.compute->wait(*unit.ready);
    unit.held = 1;
    // Ahead of time only where a stream of its own does it: a copy on this thread is best done when
    // it is needed.
    if (!one_sided_ && c_.config.overlap) {
      for (int i = 0; i < c_.config.prefetch; ++i) {
        const auto next = order()->next();
        const bool room = std::any_of(slots_.begin(), slots_.end(),
                                      [](const Slot& s) { return !s.held && s.unit < 0; });
        if (!next || !room || c_.unit_memory[*next].hooks) break;
        fetch(*next);
        order()->advance();
      }
    }
    return;
  }
  unit.asked_in = pass_number_;
  c_.compute->wait(*unit.ready);
  ++unit.held;
}

void Gatherer::join_until(int u) {
  CanonicalOrder& o = *order();
  if (u >= 0 && units_[u].fetched_in == pass_number_ && units_[u].memory)
    return;  // prefetched or joined, and still here
  if (u >= 0 && o.passed(u)) {
    throw InvalidArgument(fmt::format(
        "rank {}: unit \"{}\": asked for after its turn, and no slot was left to keep it; raise "
        "Config::prefetch (now {})",
        c_.rank(), c_.unit(u).name, c_.config.prefetch));
  }
  while (const auto next = o.next()) {
    fetch(*next);  // where it is refused, its turn is still to come
    o.advance();
    if (*next == u) return;
  }
}

void Gatherer::join_pass() {
  if (order() && !one_sided_) join_until(-1);
}

void Gatherer::fetch(int u) {
  UnitState& unit = units_[u];
  unit.fetched_in = pass_number_;
  if (unit.held > 0) {
    join_held(u);
    return;
  }
  if (c_.unit_memory[u].hooks) {
    if (!unit.memory) {
      unit.memory = static_cast<std::byte*>(
          c_.unit_options[u].acquire(static_cast<std::size_t>(whole_bytes(c_.layout, u))));
    }
    if (!unit.memory) {
      throw OutOfMemory(
          fmt::format("rank {}: unit \"{}\": the trainer's acquire gave no memory for {} bytes",
                      c_.rank(), c_.unit(u).name, whole_bytes(c_.layout, u)));
    }
    submit(u, unit.memory);
    return;
  }
  if (unit.slot < 0) {
    unit.slot = take_slot(u);
    unit.memory = slots_[unit.slot].memory;
  }
  c_.gather_stream->wait(*slots_[unit.slot].released);
  submit(u, unit.memory);
}

// What a guard shows must not be written: the peers' turn is joined into other memory, and dropped.
void Gatherer::join_held(int u) {
  if (c_.unit_memory[u].hooks) {
    void* memory = c_.unit_options[u].acquire(static_cast<std::size_t>(whole_bytes(c_.layout, u)));
    submit(u, static_cast<std::byte*>(memory));
    c_.gather_stream->synchronize();
    c_.unit_options[u].release(memory);
    return;
  }
  const int slot = take_slot(u);
  c_.gather_stream->wait(*slots_[slot].released);
  submit(u, slots_[slot].memory);
  slots_[slot].unit = -1;
}

std::optional<int> Gatherer::any_held() const {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    if (units_[u].held > 0) return u;
  }
  return std::nullopt;
}

int Gatherer::take_slot(int u) {
  // A free one, or else one whose unit was gathered ahead or joined but is not held.
  int candidate = -1;
  for (int s = 0; s < static_cast<int>(slots_.size()); ++s) {
    if (slots_[s].held) continue;
    if (slots_[s].unit < 0) {
      candidate = s;
      break;
    }
    const bool older = candidate < 0 || units_[slots_[s].unit].fetched_in <
                                            units_[slots_[candidate].unit].fetched_in;
    if (older) candidate = s;
  }
  if (candidate < 0) {
    std::vector<std::string> holders;
    for (const Slot& slot : slots_)
      holders.push_back(fmt::format("\"{}\"", c_.unit(slot.unit).name));
    throw InvalidArgument(fmt::format(
        "rank {}: unit \"{}\": every gather slot is held (by {}); release a unit first, or raise "
        "Config::prefetch (now {})",
        c_.rank(), c_.unit(u).name, fmt::join(holders, ", "), c_.config.prefetch));
  }
  Slot& slot = slots_[candidate];
  if (slot.unit >= 0) drop(slot.unit);
  slot.unit = u;
  return candidate;
}

void Gatherer::drop(int u) {
  UnitState& unit = units_[u];
  if (unit.slot >= 0) slots_[unit.slot].unit = -1;
  unit.slot = -1;
  unit.memory = nullptr;
}

void Gatherer::submit(int u, std::byte* memory) {
  for (const int f : c_.unit(u).flats) {
    const FlatInfo& flat = c_.layout.flats[f];
    all_gather(f, memory);
    memory += c_.layout.padded(flat) * static_cast<std::int64_t>(size_of(flat.dtype));
  }
  c_.gather_stream->record(*units_[u].ready);
}

void Gatherer::release(int u) {
  UnitState& unit = units_[u];
  if (unit.held == 0) {
    throw InvalidArgument(
        fmt::format("rank {}: unit \"{}\": released without a gather", c_.rank(), c_.unit(u).name));
  }
  --unit.held;
  if (!gathered_in_slot(u)) return;
  if (c_.unit_memory[u].hooks) {
    c_.compute->synchronize();
    c_.unit_options[u].release(unit.memory);
    unit.memory = nullptr;
    return;
  }
  Slot& slot = slots_[unit.slot];
  slot.held = false;
  c_.compute->record(*slot.released);
  // Where gathers are one-sided what is here may serve the next pass; elsewhere all ranks must
  // gather alike.
  if (!one_sided_) drop(u);
}

const std::byte* Gatherer::address(int p) const {
  const ParameterInfo& parameter = c_.parameter(p);
  if (c_.trainer_data[p]) return static_cast<const std::byte*>(c_.trainer_data[p]);
  const std::byte* base = c_.state->arrays(parameter.flat).whole;
  if (!base) {
    base = units_[parameter.unit].memory;
    for (const int f : c_.unit(parameter.unit).flats) {
      if (!base || f == parameter.flat) break;
      base += c_.layout.padded(c_.layout.flats[f]) *
              static_cast<std::int64_t>(size_of(c_.layout.flats[f].dtype));
    }
  }
  if (!base) return nullptr;  // an empty tensor among the trainer's
  return base + parameter.offset * static_cast<std::int64_t>(size_of(parameter.dtype));
}

void Gatherer::publish(int u) {
  if (c_.config.stage == 0) return;
  for (const int f : c_.unit(u).flats) shares_[f]->publish();
  if (gathered_in_slot(u)) return;
  if (!c_.unit_memory[u].trainer_data) {
    for (const int f : c_.unit(u).flats) {
      all_gather(f, c_.state->arrays(f).whole);
    }
    c_.gather_stream->record(*units_[u].ready);
    return;
  }
  // Through the staging buffer to the trainer's tensors.
  std::byte* staging = c_.state->entry(c_.state->plan().staging);
  for (const int f : c_.unit(u).flats) {
    const FlatInfo& flat = c_.layout.flats[f];
    gather_flat(f, staging);
    const auto element = static_cast<std::int64_t>(size_of(flat.dtype));
    for (const int p : flat.parameters) {
      device::copy(*c_.compute, staging + c_.parameter(p).offset * element,
                   static_cast<std::byte*>(c_.trainer_data[p]),
                   static_cast<std::size_t>(c_.parameter(p).count * element));
    }
  }
}

void Gatherer::settle() {
  c_.gather_stream->synchronize();
}

void Gatherer::invalidate() {
  settle();
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    if (units_[u].slot >= 0 && units_[u].held == 0) drop(u);
  }
}

void Gatherer::all_gather(int f, std::byte* whole) {
  const FlatInfo& flat = c_.layout.flats[f];
  c_.gather->submit(*c_.gather_stream, {.kind = OperationKind::all_gather,
                                        .count = static_cast<std::size_t>(flat.shard),
                                        .type = flat.dtype,
                                        .send = c_.state->arrays(f).shard,
                                        .recv = whole,
                                        .shards = shares_[f].get(),
                                        .tag = c_.unit(flat.unit).name.c_str()});
}

void Gatherer::gather_flat(int f, std::byte* whole) {
  all_gather(f, whole);
  c_.gather_stream->synchronize();
}

}  // namespace ration
