#pragma once
// A rank's arrays: allocated by inventory entry, one block a kind, and visited as pieces of
// parameters.

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "offload/tile_store.hpp"
#include "state/plan.hpp"

namespace ration {

/// Where a flat's arrays are. Null: there is none.
struct FlatArrays {
  std::byte* whole = nullptr;  ///< whole parameters
  std::byte* shard = nullptr;  ///< own shard of the parameters, inside `whole` where that is kept
  std::byte* gradient = nullptr;  ///< whole gradient that persists
  std::byte* accumulator =
      nullptr;  ///< whole fp32 accumulator, `gradient` where that is the accumulator
  std::byte* reduced = nullptr;        ///< own shard of the reduced gradient
  std::byte* reduced_whole = nullptr;  ///< stage 0: all of it
  std::byte* master = nullptr;
  std::array<std::byte*, update::kMaxStates> state{};
  std::int64_t owned_first = 0;  ///< first element of the flat whose master and state are here
  std::int64_t owned_count = 0;  ///< how many: the shard, at stage 0 the whole flat
};

/// Where a run's master and state are among its flat's owned arrays.
struct StatePlace {
  int flat = 0;
  std::int64_t first = 0;                       ///< owned element
  std::array<int, update::kMaxStates> kinds{};  ///< of the rule's states, in `state_kinds`
};

class State {
 public:
  /// Allocates everything in the plan. Throws OutOfMemory.
  State(const Layout& layout, StatePlan plan, const Config& config, Communicator& communicator);

  [[nodiscard]] const StatePlan& plan() const { return plan_; }
  [[nodiscard]] const FlatPlan& plan(int flat) const { return plan_.flats[flat]; }
  [[nodiscard]] const FlatArrays& arrays(int flat) const { return arrays_[flat]; }
  [[nodiscard]] std::byte* entry(int index) const {
    return index == kNone ? nullptr : places_[index];
  }
  [[nodiscard]] std::uint64_t allocated(MemoryKind kind) const;

  /// A run over a piece of a parameter this rank owns: weight, master, state and gradient pointers;
  /// the caller adds factor, step and key. `trainer_data` is the parameter's own tensor where the
  /// flat lives in the trainer's.
  [[nodiscard]] update::Run run(const Layout& layout, const Piece& piece, const Rule& rule,
                                DType moments, std::byte* trainer_data) const;
  [[nodiscard]] StatePlace place(const Layout& layout, const Piece& piece, const Rule& rule) const;

  /// Makes the swap files where state rests on disk. Throws IoError.
  void open_tiles();
  /// Whether it does; then runs have no master and no state of their own.
  [[nodiscard]] bool in_tiles() const { return !plan_.tiles.tiles.empty(); }
  /// Calls `work` with elements [first, first + count) of a run, in pieces whose master and state
  /// are in memory until it returns; `at` is the piece's first element in the run. Throws IoError.
  using Work = std::function<void(const update::Run& piece, std::size_t at)>;
  void with_state(const StatePlace& place, const update::Run& run, std::size_t first,
                  std::size_t count, offload::TileStore::Use use, const Work& work) const;
  void with_state(const StatePlace& place, const update::Run& run, offload::TileStore::Use use,
                  const Work& work) const {
    with_state(place, run, 0, run.count, use, work);
  }
  /// Visits all state in tiles to be updated, one time from the first flat to the last, the next
  /// time back: each segment with its bytes. Throws IoError.
  void walk_tiles(const std::function<void(const TileSegment&, std::byte* arrays)>& visit) const;
  /// The run over elements [first, first + count), of which the segment has all, with its state.
  [[nodiscard]] update::Run attached(const StatePlace& place, const update::Run& run,
                                     std::size_t first, std::size_t count,
                                     const TileSegment& segment, std::byte* arrays) const;

 private:
  StatePlan plan_;
  std::array<std::unique_ptr<Memory>, kMemoryKinds> blocks_;
  std::vector<std::byte*> places_;
  std::vector<FlatArrays> arrays_;
  const Config& config_;
  struct Segment {
    std::size_t tile = 0;
    const TileSegment* segment = nullptr;
  };
  std::vector<std::vector<Segment>> segments_;           ///< by flat
  std::vector<std::vector<std::size_t>> element_bytes_;  ///< by flat: tile_arrays
  std::unique_ptr<offload::TileStore> tiles_;
};

}  // namespace ration
