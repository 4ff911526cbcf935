#pragma once
// Which arrays a rank keeps for each flat, from layout and options alone: the inventory that every
// allocation, the report and `plan` go by.

#include <array>
#include <string>
#include <vector>

#include <ration/config.hpp>
#include <ration/memory.hpp>
#include <ration/rules.hpp>

#include "layout/layout.hpp"
#include "update/update.hpp"

namespace ration {

/// What a unit's memory depends on besides the layout.
struct UnitMemory {
  bool trainer_data = false;      ///< parameters are the trainer's tensors
  bool trainer_gradient = false;  ///< gradients are
  bool hooks = false;             ///< gathered into memory that the trainer is asked for
};

inline constexpr int kNone = -1;

/// Every array begins at a multiple of this many bytes.
inline constexpr std::uint64_t kEntryAlignment = 256;

/// Every array in a snapshot does.
inline constexpr std::int64_t kSnapshotAlignment = 64;

/// Arrays of a flat, as indices of inventory entries (kNone: there is none).
struct FlatPlan {
  bool gathered_in_slot = false;  ///< parameters are whole only between gather and release
  int whole = kNone;              ///< whole parameters; the own shard is inside
  int shard = kNone;              ///< own shard of the parameters, where `whole` is not kept
  bool in_trainer = false;        ///< parameters live in the trainer's tensors only (stage 0)

  DType gradient_type = DType::f32;
  DType reduce_type = DType::f32;
  DType reduced_type = DType::f32;  ///< what the norm and the update read
  bool uses_bucket = false;
  bool accumulates_in_place = false;  ///< the gradient is the fp32 accumulator of the micro-steps
  int gradient = kNone;               ///< whole gradient that persists
  int accumulator = kNone;            ///< whole fp32 accumulator beside the gradient
  bool reduced_in_place =
      false;            ///< the reduced shard is the own part of `gradient` or `accumulator`
  int reduced = kNone;  ///< reduced gradient: whole at stage 0, otherwise the own shard

  update::WeightKind weight_kind = update::WeightKind::own;
  int master = kNone;
  std::vector<std::string> state_kinds;  ///< union over the groups of the flat's parameters
  std::array<int, update::kMaxStates> state{kNone, kNone, kNone, kNone};
  int snapshot = kNone;  ///< all that is saved of the own shard
};

/// A piece of the flat's owned elements [first, first + count) in a tile: the arrays side by side
/// from `offset` on, first the masters, if there are any, then as `state_kinds`.
struct TileSegment {
  int flat = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::size_t offset = 0;
};

/// The state of a rank that rests on disk, cut at the same elements on every rank.
struct TilePlan {
  std::vector<std::vector<TileSegment>> tiles;
  std::vector<std::size_t> bytes;  ///< of each tile
  std::size_t slots = 0;           ///< tiles in memory
  int memory = kNone;              ///< inventory entry: the slots, and room to align them
  std::uint64_t disk_bytes = 0;
};

/// Bytes of an element in each array of a segment.
std::vector<std::size_t> tile_arrays(const FlatPlan& flat, DType moments);
/// Bytes of such an array: the next begins at a multiple of 64.
std::size_t tile_array_bytes(std::int64_t count, std::size_t element);

struct StatePlan {
  std::vector<FlatPlan> flats;
  TilePlan tiles;                 ///< empty: all state is in memory
  std::vector<int> gather_slots;  ///< inventory entries
  std::vector<int> buckets;
  int staging = kNone;  ///< a unit's whole parameters on their way to the trainer's tensors
  Inventory inventory;
};

Accumulation accumulation_of(const Config& config);

/// Throws InvalidArgument for what cannot be: a stage that the
/// trainer's own gradients make pointless, more than kMaxStates state kinds in a flat.
StatePlan plan_state(const Layout& layout, const Config& config, const std::vector<Rule>& groups,
                     const std::vector<UnitMemory>& units);

/// Bytes of a unit's whole parameters side by side, as in a gather slot.
std::int64_t whole_bytes(const Layout& layout, int unit);

/// "h.3/f32" or "h.3/f32/frozen".
std::string flat_name(const Layout& layout, int flat);

}  // namespace ration
