#include "state/plan.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/align.hpp"
#include "offload/tile_store.hpp"

namespace ration {

Accumulation accumulation_of(const Config& config) {
  return config.accumulation.value_or(config.stage <= 1 ? Accumulation::local
                                                        : Accumulation::sharded);
}

std::string flat_name(const Layout& layout, int flat) {
  const FlatInfo& info = layout.flats[flat];
  return fmt::format("{}/{}{}", layout.units[info.unit].name, name_of(info.dtype),
                     info.trainable ? "" : "/frozen");
}

std::int64_t whole_bytes(const Layout& layout, int unit) {
  std::int64_t bytes = 0;
  for (const int f : layout.units[unit].flats) {
    bytes +=
        layout.padded(layout.flats[f]) * static_cast<std::int64_t>(size_of(layout.flats[f].dtype));
  }
  return bytes;
}

std::vector<std::size_t> tile_arrays(const FlatPlan& flat, DType moments) {
  std::vector<std::size_t> elements;
  if (flat.weight_kind == update::WeightKind::split) elements.push_back(2);
  if (flat.weight_kind == update::WeightKind::fp32) elements.push_back(4);
  elements.insert(elements.end(), flat.state_kinds.size(), size_of(moments));
  return elements;
}

std::size_t tile_array_bytes(std::int64_t count, std::size_t element) {
  return static_cast<std::size_t>(
      round_up(static_cast<std::uint64_t>(count) * element, std::uint64_t{64}));
}

namespace {

constexpr std::int64_t kTileElements = 512 * 1024;  // megabytes: a disk is at its speed from there
constexpr std::size_t kTilesOnTheirWay = 4;

class Planner {
 public:
  Planner(const Layout& layout, const Config& config, const std::vector<Rule>& groups,
          const std::vector<UnitMemory>& units)
      : layout_(layout), config_(config), groups_(groups), units_(units) {}

  StatePlan run() {
    for (int f = 0; f < static_cast<int>(layout_.flats.size()); ++f) {
      FlatPlan& flat = plan_.flats.emplace_back();
      parameters(f, flat);
      if (layout_.flats[f].trainable) {
        gradients(f, flat);
        optimizer_state(f, flat);
      }
      if (config_.asynchronous_save) snapshot(f, flat);
    }
    if (on_disk()) tiles();
    shared_buffers();
    return std::move(plan_);
  }

 private:
  // Rounded as it will be allocated, so that the plan and the memory agree to the byte; never
  // nothing, so that an empty array has an address.
  int entry(std::string name, MemoryKind kind, std::int64_t elements, std::size_t element_bytes) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * element_bytes;
    plan_.inventory.push_back(
        {.name = std::move(name),
         .kind = kind,
         .bytes = std::max(round_up(bytes, kEntryAlignment), kEntryAlignment)});
    return static_cast<int>(plan_.inventory.size()) - 1;
  }

  void parameters(int f, FlatPlan& flat) {
    const FlatInfo& info = layout_.flats[f];
    const UnitInfo& unit = layout_.units[info.unit];
    const std::size_t element = size_of(info.dtype);
    if (units_[info.unit].trainer_data) {
      if (config_.stage == 3) {
        throw InvalidArgument(
            fmt::format("unit \"{}\": stage 3 shards parameters, but the trainer owns its tensors; "
                        "give UnitOptions::acquire and release instead of data, or use stage 2",
                        unit.name));
      }
      entry(flat_name(layout_, f) + "/trainer's parameters", MemoryKind::trainer, info.length,
            element);
      flat.in_trainer = config_.stage == 0;
      if (!flat.in_trainer) {
        flat.shard = entry(flat_name(layout_, f) + "/parameter", MemoryKind::parameters, info.shard,
                           element);
      }
      return;
    }
    flat.gathered_in_slot = config_.stage == 3 && !unit.keep_whole;
    if (flat.gathered_in_slot) {
      flat.shard =
          entry(flat_name(layout_, f) + "/parameter", MemoryKind::parameters, info.shard, element);
    } else {
      flat.whole = entry(flat_name(layout_, f) + "/parameter", MemoryKind::parameters,
                         layout_.padded(info), element);
    }
  }

  void gradients(int f, FlatPlan& flat) {
    const FlatInfo& info = layout_.flats[f];
    const std::string name = flat_name(layout_, f);
    const int stage = config_.stage;
    const std::int64_t whole = layout_.padded(info);
    const std::int64_t own = stage == 0 ? whole : info.shard;
    const bool several = config_.micro_steps > 1;
    const bool local = accumulation_of(config_) == Accumulation::local;

    flat.gradient_type = config_.precision.gradient.value_or(info.dtype);
    flat.reduce_type = config_.precision.reduce.value_or(
        flat.gradient_type == DType::bf16 ? DType::bf16 : DType::f32);
    flat.reduced_type = several && !local ? DType::f32 : flat.reduce_type;
    if (units_[info.unit].trainer_gradient) {
      if (stage >= 2) {
        throw InvalidArgument(fmt::format(
            "unit \"{}\": stage {} shards gradients, but the trainer owns whole ones; leave "
            "ParameterSpec::gradient empty and write to Unit::gradient, or use stage 1",
            layout_.units[info.unit].name, stage));
      }
      entry(name + "/trainer's gradients", MemoryKind::trainer, info.length,
            size_of(flat.gradient_type));
    }
    const bool trainer = units_[info.unit].trainer_gradient;
    flat.accumulates_in_place = several && local && flat.gradient_type == DType::f32 && !trainer;
    flat.uses_bucket = trainer || (several ? !flat.accumulates_in_place : stage >= 2);
    if (!flat.uses_bucket) {
      flat.gradient =
          entry(name + "/gradient", MemoryKind::gradients, whole, size_of(flat.gradient_type));
    }
    if (several && local && !flat.accumulates_in_place) {
      flat.accumulator = entry(name + "/accumulator", MemoryKind::gradients, whole, sizeof(float));
    }
    // What is sent persists whole: then its own part can hold the result.
    const bool sent_persists =
        flat.accumulator != kNone || (flat.gradient != kNone && (!several || local));
    const DType sent_type = flat.accumulator != kNone ? DType::f32 : flat.gradient_type;
    flat.reduced_in_place = sent_persists && sent_type == flat.reduced_type;
    if (!flat.reduced_in_place) {
      flat.reduced =
          entry(name + "/reduced gradient", MemoryKind::gradients, own, size_of(flat.reduced_type));
    }
  }

  void optimizer_state(int f, FlatPlan& flat) {
    const FlatInfo& info = layout_.flats[f];
    const std::string name = flat_name(layout_, f);
    const std::int64_t own = config_.stage == 0 ? layout_.padded(info) : info.shard;
    if (info.dtype != DType::f32) {
      const bool split = config_.precision.master == Master::split && info.dtype == DType::bf16;
      flat.weight_kind = split ? update::WeightKind::split : update::WeightKind::fp32;
      if (!on_disk())
        flat.master = entry(name + "/master", MemoryKind::optimizer_state, own, split ? 2 : 4);
    }
    for (const int p : info.parameters) {
      for (const std::string& kind : update::state_names(groups_[layout_.parameters[p].group])) {
        if (std::find(flat.state_kinds.begin(), flat.state_kinds.end(), kind) ==
            flat.state_kinds.end()) {
          flat.state_kinds.push_back(kind);
        }
      }
    }
    if (flat.state_kinds.size() > update::kMaxStates) {
      throw InvalidArgument(fmt::format(
          "unit \"{}\": its groups' rules need {} kinds of state in one flat, at most {} are "
          "possible; put the groups in units of their own",
          layout_.units[info.unit].name, flat.state_kinds.size(), update::kMaxStates));
    }
    for (std::size_t k = 0; k < flat.state_kinds.size() && !on_disk(); ++k) {
      flat.state[k] = entry(fmt::format("{}/{}", name, flat.state_kinds[k]),
                            MemoryKind::optimizer_state, own, size_of(config_.precision.moments));
    }
  }

  [[nodiscard]] bool on_disk() const { return config_.offload.optimizer_state == Tier::disk; }

  // Cuts the concatenation of the flats, so that small units make no small tiles.
  void tiles() {
    const auto wanted = static_cast<std::int64_t>(config_.tile_elements);
    const std::int64_t elements =
        wanted == 0 ? kTileElements : round_up(wanted, std::int64_t{1024});
    TilePlan& plan = plan_.tiles;
    std::int64_t left = 0;  // elements that the last tile still takes
    for (int f = 0; f < static_cast<int>(layout_.flats.size()); ++f) {
      const FlatInfo& info = layout_.flats[f];
      if (!info.trainable) continue;
      const std::int64_t own = config_.stage == 0 ? layout_.padded(info) : info.shard;
      for (std::int64_t first = 0; first < own;) {
        if (left == 0) {
          plan.tiles.emplace_back();
          plan.bytes.push_back(0);
          left = elements;
        }
        const std::int64_t count = std::min(left, own - first);
        plan.tiles.back().push_back(
            {.flat = f, .first = first, .count = count, .offset = plan.bytes.back()});
        for (const std::size_t element : tile_arrays(plan_.flats[f], config_.precision.moments))
          plan.bytes.back() += tile_array_bytes(count, element);
        first += count;
        left -= count;
      }
    }
    std::size_t slot = 0;
    for (const std::size_t bytes : plan.bytes) {
      slot = std::max(slot, offload::padded(bytes));
      plan.disk_bytes += offload::padded(bytes);
    }
    if (plan.disk_bytes == 0) {  // no rule has any state
      plan = {};
      return;
    }
    plan.slots =
        std::min(plan.tiles.size(), kTilesOnTheirWay + config_.offload.resident_bytes / slot);
    plan.memory = entry("tiles of optimizer state", MemoryKind::optimizer_state,
                        static_cast<std::int64_t>(plan.slots * slot + io::kDirectAlignment), 1);
  }

  void snapshot(int f, FlatPlan& flat) {
    const FlatInfo& info = layout_.flats[f];
    std::int64_t bytes = 0;
    const auto array = [&](DType type) {
      bytes += round_up(info.shard * static_cast<std::int64_t>(size_of(type)), kSnapshotAlignment);
    };
    array(info.dtype);
    if (flat.weight_kind != update::WeightKind::own) array(DType::f32);  // whatever its kind
    for (std::size_t k = 0; k < flat.state_kinds.size(); ++k) array(config_.precision.moments);
    flat.snapshot = entry(flat_name(layout_, f) + "/snapshot", MemoryKind::snapshot, bytes, 1);
  }

  // Planned wherever a unit uses them, though all it has may be empty.
  void shared_buffers() {
    std::int64_t slot = -1;
    std::int64_t bucket = -1;
    std::int64_t staging = -1;
    for (int u = 0; u < static_cast<int>(layout_.units.size()); ++u) {
      std::int64_t in_bucket = 0;
      bool in_slot = false;
      bool uses_bucket = false;
      for (const int f : layout_.units[u].flats) {
        const FlatPlan& flat = plan_.flats[f];
        in_slot = in_slot || flat.gathered_in_slot;
        if (!flat.uses_bucket) continue;
        uses_bucket = true;
        in_bucket += layout_.padded(layout_.flats[f]) *
                     static_cast<std::int64_t>(size_of(flat.gradient_type));
      }
      if (in_slot && !units_[u].hooks) slot = std::max(slot, whole_bytes(layout_, u));
      if (units_[u].trainer_data && config_.stage > 0)
        staging = std::max(staging, whole_bytes(layout_, u));
      if (uses_bucket) bucket = std::max(bucket, in_bucket);
    }
    for (int i = 0; slot >= 0 && i < config_.prefetch + 1; ++i) {
      plan_.gather_slots.push_back(
          entry(fmt::format("gather slot {}", i), MemoryKind::buffers, slot, 1));
    }
    for (int i = 0; bucket >= 0 && i < config_.buckets; ++i) {
      plan_.buckets.push_back(
          entry(fmt::format("gradient bucket {}", i), MemoryKind::buffers, bucket, 1));
    }
    if (staging >= 0)
      plan_.staging = entry("staging for the trainer's tensors", MemoryKind::buffers, staging, 1);
  }

  const Layout& layout_;
  const Config& config_;
  const std::vector<Rule>& groups_;
  const std::vector<UnitMemory>& units_;
  StatePlan plan_;
};

}  // namespace

StatePlan plan_state(const Layout& layout, const Config& config, const std::vector<Rule>& groups,
                     const std::vector<UnitMemory>& units) {
  return Planner(layout, config, groups, units).run();
}

}  // namespace ration
