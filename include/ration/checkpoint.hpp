#pragma once
// Checkpoints: each rank saves its shard, a folder appears when all of it is safe on disk, and
// loads at any world size, stage, precision and kind of master. docs/checkpoint-format.md has the
// format.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ration {

class ShardedOptimizer;

/// The trainer's own data, by name: any bytes. Rank 0's are saved, every rank gets them back. At
/// most 4 MiB together.
using Extra = std::map<std::string, std::string>;

struct SaveOptions {
  /// What the checkpoint is called by; default: updates and skipped steps so far.
  std::optional<std::int64_t> step = std::nullopt;
  Extra extra = {};
  /// How many of the newest steps stay in the folder (at least 2); 0: all.
  int keep = 2;
  /// Copies the state, returns, and writes beside the training (Config::asynchronous_save).
  bool asynchronous = false;
};

struct SaveReport {
  std::int64_t step = 0;
  std::string folder = {};     ///< of the step; empty while an asynchronous save is under way
  std::uint64_t bytes = 0;     ///< of state, over all ranks
  bool already_saved = false;  ///< this run has just saved this step: nothing was written
};

struct LoadOptions {
  std::optional<std::int64_t> step = std::nullopt;  ///< default: the newest
  /// Weights only, to start a training of its own: no optimizer state, step counts or options.
  bool parameters_only = false;
  bool allow_missing =
      false;  ///< parameters that the checkpoint lacks keep their values, or are zero
  bool allow_unexpected = false;  ///< parameters that only the checkpoint has are passed over
  bool allow_older = false;       ///< an older step when the newest is damaged
};

struct LoadReport {
  std::int64_t step = 0;
  int world = 0;  ///< ranks that saved
  std::string folder = {};
  Extra extra = {};
  std::vector<std::string> missing = {};     ///< parameters that were not found (allow_missing)
  std::vector<std::string> unexpected = {};  ///< that nobody asked for (allow_unexpected)
};

namespace checkpoint {

/// An optimizer under the name by which it is saved.
struct Named {
  std::string name;
  ShardedOptimizer* optimizer = nullptr;
};

/// Collective over the ranks of the optimizers, which must be the same for all of them. Saves them
/// as one step in the folder `root`. Returns when a power cut loses nothing any more. Throws, on
/// all ranks alike, IoError naming file and reason (the former step is then intact and training can
/// go on), InvalidArgument in the middle of a step.
SaveReport save(const std::string& root, std::span<const Named> optimizers,
                const SaveOptions& options = {});

inline SaveReport save(const std::string& root, std::initializer_list<Named> optimizers,
                       const SaveOptions& options = {}) {
  return save(root, std::span<const Named>(optimizers.begin(), optimizers.size()), options);
}

/// Collective. The counterpart of `save`; `root` may also be one step's folder. An optimizer need
/// not be initialized. Throws, on all ranks alike, CorruptCheckpoint naming the file, IoError,
/// InvalidArgument for parameters that are missing, unexpected or of another shape; if values were
/// already changed the optimizer throws from every call until a load succeeds.
LoadReport load(const std::string& root, std::span<const Named> optimizers,
                const LoadOptions& options = {});

inline LoadReport load(const std::string& root, std::initializer_list<Named> optimizers,
                       const LoadOptions& options = {}) {
  return load(root, std::span<const Named>(optimizers.begin(), optimizers.size()), options);
}

/// Collective. Weights that another program wrote, to start from: a safetensors file, or an HDF5
/// file with a dataset for each parameter, both by name. f32, bf16 and f16 are converted;
/// everything else begins as after `initialize`. The optimizer need not be initialized. Every rank
/// reads the file. Of `options` only `allow_missing` and `allow_unexpected` count. Throws as `load`
/// does.
LoadReport load_parameters(const std::string& file, ShardedOptimizer& optimizer,
                           const LoadOptions& options = {});

/// The newest committed step's folder in `root`, by name, or nothing. Throws IoError.
std::optional<std::string> find_latest(const std::string& root);

}  // namespace checkpoint
}  // namespace ration
