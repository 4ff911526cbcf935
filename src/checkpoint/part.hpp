#pragma once
// What a rank holds of one optimizer, as saving and loading see it. The engine implements it, over
// the state itself or over a copy.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/shard.hpp"

namespace ration::checkpoint {

/// What is saved. Flats are numbered in the order of `describe().units`.
class SavedPart {
 public:
  virtual ~SavedPart() = default;
  /// The same on every rank.
  [[nodiscard]] virtual const OptimizerEntry& describe() const = 0;
  /// The own share of every array: together, over ranks, each element once.
  [[nodiscard]] virtual std::vector<Slice> slices() const = 0;
  /// Elements [first, first + count) of a flat (not of a slice), in the kind's type; zeros between
  /// parameters. Called from the thread that saves.
  virtual void read(int flat, int kind, std::int64_t first, std::int64_t count,
                    std::byte* to) const = 0;
};

/// A piece of one parameter, and what a load should bring for it.
struct WantedPiece {
  std::string_view parameter = {};
  std::int64_t first = 0;  ///< in the parameter
  std::int64_t count = 0;
  bool trainable = true;              ///< takes fp32 weights, where there are any
  std::vector<std::string> states{};  ///< kinds besides the weights
};

/// What is loaded into.
class LoadedPart {
 public:
  virtual ~LoadedPart() = default;
  /// As it would be saved: names, shapes, rules. The same on every rank.
  [[nodiscard]] virtual const OptimizerEntry& describe() const = 0;
  /// What this rank keeps; disjoint.
  [[nodiscard]] virtual std::vector<WantedPiece> wanted() const = 0;
  /// Elements [first, first + count) of a piece: its weights, or (`state` >= 0) that state. `from`
  /// may begin at any byte.
  virtual void write(std::size_t piece, int state, std::int64_t first, std::int64_t count,
                     DType type, const std::byte* from) = 0;
};

}  // namespace ration::checkpoint
