#pragma once
// A rank's arrays: allocated by inventory entry, one block a kind, and visited as pieces of
// parameters.

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
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

class State {
 public:
  /// Allocates everything in the plan. Throws OutOfMemory.
  State(const Layout& layout, StatePlan plan, int stage, Communicator& communicator);

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

 private:
  StatePlan plan_;
  std::array<std::unique_ptr<Memory>, kMemoryKinds> blocks_;
  std::vector<std::byte*> places_;
  std::vector<FlatArrays> arrays_;
};

}  // namespace ration
