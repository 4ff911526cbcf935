#include "state/state.hpp"

#include <algorithm>
#include <utility>

#include "core/align.hpp"
#include "core/log.hpp"

namespace ration {

State::State(const Layout& layout, StatePlan plan, const Config& config, Communicator& communicator)
    : plan_(std::move(plan)), config_(config) {
  const int stage = config.stage;
  std::array<std::size_t, kMemoryKinds> sizes{};
  std::vector<std::size_t> offsets;
  for (const InventoryEntry& entry : plan_.inventory) {
    std::size_t& size = sizes[static_cast<std::size_t>(entry.kind)];
    offsets.push_back(size);
    size += entry.bytes;
  }
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (static_cast<MemoryKind>(kind) == MemoryKind::trainer || sizes[kind] == 0) continue;
    blocks_[kind] = communicator.allocate(sizes[kind]);
  }
  for (std::size_t i = 0; i < plan_.inventory.size(); ++i) {
    const auto& block = blocks_[static_cast<std::size_t>(plan_.inventory[i].kind)];
    places_.push_back(block ? block->data() + offsets[i] : nullptr);
  }

  for (std::size_t f = 0; f < layout.flats.size(); ++f) {
    const FlatInfo& info = layout.flats[f];
    const FlatPlan& flat = plan_.flats[f];
    FlatArrays arrays;
    const std::int64_t first = info.shard * communicator.rank();
    const auto part = [&](std::byte* whole, DType type) {
      return whole ? whole + first * static_cast<std::int64_t>(size_of(type)) : nullptr;
    };
    arrays.whole = entry(flat.whole);
    arrays.shard = arrays.whole ? part(arrays.whole, info.dtype) : entry(flat.shard);
    arrays.owned_first = stage == 0 ? 0 : first;
    arrays.owned_count = stage == 0 ? layout.padded(info) : info.shard;
    arrays.gradient = entry(flat.gradient);
    arrays.accumulator = flat.accumulates_in_place ? arrays.gradient : entry(flat.accumulator);
    if (flat.reduced_in_place) {
      std::byte* sent = arrays.accumulator ? arrays.accumulator : arrays.gradient;
      arrays.reduced = part(sent, flat.reduced_type);
      arrays.reduced_whole = stage == 0 ? sent : nullptr;
    } else if (stage == 0) {
      arrays.reduced_whole = entry(flat.reduced);
      arrays.reduced = part(arrays.reduced_whole, flat.reduced_type);
    } else {
      arrays.reduced = entry(flat.reduced);
    }
    arrays.master = entry(flat.master);
    for (std::size_t k = 0; k < update::kMaxStates; ++k) arrays.state[k] = entry(flat.state[k]);
    arrays_.push_back(arrays);
  }
  segments_.resize(layout.flats.size());
  for (const FlatPlan& flat : plan_.flats)
    element_bytes_.push_back(tile_arrays(flat, config.precision.moments));
  for (std::size_t tile = 0; tile < plan_.tiles.tiles.size(); ++tile) {
    for (const TileSegment& segment : plan_.tiles.tiles[tile])
      segments_[static_cast<std::size_t>(segment.flat)].push_back({tile, &segment});
  }
}

void State::open_tiles() {
  const TilePlan& plan = plan_.tiles;
  auto device = offload::make_device(
      {.folders = {config_.offload.directories.begin(), config_.offload.directories.end()},
       .bytes = plan.disk_bytes,
       .tickets = plan.slots});
  log::info("optimizer state of {} bytes in {} tiles on disk, {} in memory, by {}", plan.disk_bytes,
            plan.tiles.size(), plan.slots, device->name());
  const auto begin = reinterpret_cast<std::uintptr_t>(entry(plan.memory));
  tiles_ = std::make_unique<offload::TileStore>(
      plan.bytes, plan.slots,
      entry(plan.memory) + (round_up(begin, std::uintptr_t{io::kDirectAlignment}) - begin),
      std::move(device));
}

void State::with_state(const StatePlace& place, const update::Run& run, std::size_t first,
                       std::size_t count, offload::TileStore::Use use, const Work& work) const {
  if (count == 0) return;
  if (!in_tiles()) {
    work(update::part(run, first, count), first);
    return;
  }
  const std::vector<Segment>& segments = segments_[static_cast<std::size_t>(place.flat)];
  const auto begin = place.first + static_cast<std::int64_t>(first);
  const auto end = begin + static_cast<std::int64_t>(count);
  auto at = std::partition_point(segments.begin(), segments.end(), [&](const Segment& s) {
    return s.segment->first + s.segment->count <= begin;
  });
  for (; at != segments.end() && at->segment->first < end; ++at) {
    const std::int64_t from = std::max(begin, at->segment->first);
    const std::int64_t to = std::min(end, at->segment->first + at->segment->count);
    std::byte* bytes = tiles_->hold(at->tile, use);
    const auto part = static_cast<std::size_t>(from - place.first);
    work(attached(place, run, part, static_cast<std::size_t>(to - from), *at->segment,
                  bytes + at->segment->offset),
         part);
  }
}

void State::walk_tiles(
    const std::function<void(const TileSegment&, std::byte* arrays)>& visit) const {
  using Store = offload::TileStore;
  tiles_->walk(Store::Use::update, Store::Order::alternating,
               [&](std::size_t tile, std::byte* bytes) {
                 const std::vector<TileSegment>& segments = plan_.tiles.tiles[tile];
                 // The same order of units whatever the tiles are.
                 const bool backward = tiles_->backward();
                 for (std::size_t i = 0; i < segments.size(); ++i) {
                   const TileSegment& s = segments[backward ? segments.size() - 1 - i : i];
                   visit(s, bytes + s.offset);
                 }
               });
}

update::Run State::attached(const StatePlace& place, const update::Run& run, std::size_t first,
                            std::size_t count, const TileSegment& segment,
                            std::byte* arrays) const {
  const FlatPlan& flat = plan_.flats[static_cast<std::size_t>(segment.flat)];
  const std::vector<std::size_t>& elements = element_bytes_[static_cast<std::size_t>(segment.flat)];
  const auto within =
      static_cast<std::size_t>(place.first + static_cast<std::int64_t>(first) - segment.first);
  std::array<std::byte*, update::kMaxStates + 1> at{};
  for (std::size_t a = 0; a < elements.size(); ++a) {
    at[a] = arrays + within * elements[a];
    arrays += tile_array_bytes(segment.count, elements[a]);
  }
  update::Run part = update::part(run, first, count);
  std::size_t states = 0;  // before them, a master
  if (flat.weight_kind != update::WeightKind::own) part.master = at[states++];
  for (std::size_t k = 0; k < update::kMaxStates; ++k) {
    if (place.kinds[k] >= 0) part.state[k] = at[states + static_cast<std::size_t>(place.kinds[k])];
  }
  return part;
}

std::uint64_t State::allocated(MemoryKind kind) const {
  const auto& block = blocks_[static_cast<std::size_t>(kind)];
  return block ? block->size() : 0;
}

update::Run State::run(const Layout& layout, const Piece& piece, const Rule& rule, DType moments,
                       std::byte* trainer_data) const {
  const ParameterInfo& parameter = layout.parameters[piece.parameter];
  const FlatPlan& flat = plan_.flats[parameter.flat];
  const FlatArrays& arrays = arrays_[parameter.flat];
  const std::int64_t owned = piece.flat_first - arrays.owned_first;  // place in the owned arrays
  const auto at = [](std::byte* array, std::int64_t element, std::size_t bytes) {
    return array ? array + element * static_cast<std::int64_t>(bytes) : nullptr;
  };
  update::Run run;
  run.count = static_cast<std::size_t>(piece.count);
  run.gradient_type = flat.reduced_type;
  run.gradient = at(arrays.reduced_whole ? arrays.reduced_whole : arrays.reduced, owned,
                    size_of(flat.reduced_type));
  run.weight_type = parameter.dtype;
  run.weight_kind = flat.weight_kind;
  if (flat.in_trainer) {
    run.weight = at(trainer_data, piece.first, size_of(parameter.dtype));
  } else if (arrays.owned_count == layout.padded(layout.flats[parameter.flat]) && arrays.whole) {
    run.weight = at(arrays.whole, owned, size_of(parameter.dtype));
  } else {
    run.weight = at(arrays.shard, owned, size_of(parameter.dtype));
  }
  run.master = at(arrays.master, owned, flat.weight_kind == update::WeightKind::split ? 2 : 4);
  run.state_type = moments;
  const StatePlace where = place(layout, piece, rule);
  for (std::size_t k = 0; k < update::kMaxStates; ++k) {
    if (where.kinds[k] < 0) continue;
    run.state[k] =
        at(arrays.state[static_cast<std::size_t>(where.kinds[k])], owned, size_of(moments));
  }
  run.first_element = static_cast<std::uint64_t>(piece.first);
  return run;
}

StatePlace State::place(const Layout& layout, const Piece& piece, const Rule& rule) const {
  StatePlace place;
  place.flat = layout.parameters[piece.parameter].flat;
  place.first = piece.flat_first - arrays_[place.flat].owned_first;
  place.kinds.fill(kNone);
  const std::vector<std::string>& kinds = plan_.flats[place.flat].state_kinds;
  const std::vector<std::string> names = update::state_names(rule);
  for (std::size_t k = 0; k < names.size(); ++k) {
    const auto kind = std::find(kinds.begin(), kinds.end(), names[k]);
    if (kind != kinds.end()) place.kinds[k] = static_cast<int>(kind - kinds.begin());
  }
  return place;
}

}  // namespace ration
