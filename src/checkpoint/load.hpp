#pragma once
// A collective load: rank 0 chooses the step and hands out the manifest; each rank reads what it
// keeps, whatever the world size that saved.

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ration/checkpoint.hpp>

#include "checkpoint/part.hpp"
#include "comm/communicator.hpp"

namespace ration::checkpoint {

/// The step that a load of `root` (or of a step's folder itself) means, with its manifest: the
/// newest whose manifest and file sizes agree. Throws InvalidArgument when there is none,
/// CorruptCheckpoint when it is damaged (an older one is taken only when `options` allow it).
struct Found {
  std::filesystem::path folder;
  std::string text;  ///< of the manifest
};
Found find(const std::filesystem::path& root, const LoadOptions& options);

/// The same, alike on every rank. Collective.
struct Opened {
  std::filesystem::path folder;
  Manifest manifest;
};
Opened open(Communicator& communicator, const std::filesystem::path& root,
            const LoadOptions& options);

/// How parts of this job meet optimizers of a checkpoint: by parameter name.
class LoadPlan {
 public:
  /// Throws InvalidArgument, the same on every rank, for parameters that are missing, unexpected,
  /// or of another shape, states that the checkpoint lacks, rules that differ.
  LoadPlan(const Opened& opened, std::span<LoadedPart* const> parts, const LoadOptions& options);

  /// Reads and verifies this rank's elements. Throws CorruptCheckpoint or IoError; parts are then
  /// half written.
  void read() const;

  /// The optimizer of the checkpoint that a part is loaded from.
  [[nodiscard]] const OptimizerEntry& source(std::size_t part) const;
  /// A parameter's entry in it, also under a tied name; null when it is not there.
  [[nodiscard]] const ParameterEntry* find(std::size_t part, std::string_view parameter) const;

  /// Whether a load brings the states of a parameter of this name, besides its weights.
  [[nodiscard]] bool brings_state(std::size_t part, std::string_view parameter) const;

  [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }
  [[nodiscard]] const std::vector<std::string>& unexpected() const { return unexpected_; }

 private:
  /// Where a parameter is in the checkpoint.
  struct Place {
    int flat = 0;  ///< in the manifest's numbering
    const FlatEntry* entry = nullptr;
    const ParameterEntry* parameter = nullptr;
  };
  /// An array's piece to bring.
  struct Item {
    int flat = 0;
    int kind = 0;
    std::int64_t first = 0;  ///< in the flat
    std::int64_t count = 0;
    std::size_t part = 0;
    std::size_t piece = 0;
    int state = -1;  ///< -1: weights
    std::int64_t piece_first = 0;
  };
  using Names = std::map<std::string, Place, std::less<>>;

  void match(std::size_t part, const LoadOptions& options);
  void match_states(std::size_t part) const;
  void match_rules(std::size_t part) const;
  void plan(std::size_t part, const LoadOptions& options);
  void read_shard(int rank, std::vector<Item>& items) const;

  const Opened& opened_;
  bool parameters_only_;
  std::vector<LoadedPart*> parts_;
  std::vector<const OptimizerEntry*> sources_;
  std::vector<Names> names_;  ///< per part
  std::vector<Item> items_;
  std::vector<std::string> missing_, unexpected_;
};

}  // namespace ration::checkpoint
