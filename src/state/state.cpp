#include "state/state.hpp"

#include <algorithm>

namespace ration {

State::State(const Layout& layout, StatePlan plan, int stage, Communicator& communicator)
    : plan_(std::move(plan)) {
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
  const std::vector<std::string> names = update::state_names(rule);
  for (std::size_t k = 0; k < names.size(); ++k) {
    const auto kind = std::find(flat.state_kinds.begin(), flat.state_kinds.end(), names[k]);
    if (kind == flat.state_kinds.end()) continue;
    const auto index = static_cast<std::size_t>(kind - flat.state_kinds.begin());
    run.state[k] = at(arrays.state[index], owned, size_of(moments));
  }
  run.first_element = static_cast<std::uint64_t>(piece.first);
  return run;
}

}  // namespace ration
