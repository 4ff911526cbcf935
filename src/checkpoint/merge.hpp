#pragma once
// One file out of all shards, for whoever takes the model away: HDF5 or safetensors by the output's
// name. Streams: memory does not depend on the model's size, every block is verified on the way.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/tensors.hpp"

namespace ration::checkpoint {

/// Bytes done and in all.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct MergeOptions {
  TensorOptions tensors = {};
  /// Largest bytes of tensors in a file; 0: no limit. safetensors only: "model.safetensors" becomes
  /// "model-00001-of-00003.safetensors", ... and "model.safetensors.index.json".
  std::uint64_t largest_file = 0;
  Progress progress = {};
};

struct MergeReport {
  std::vector<std::string> files = {};
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of tensors
};

/// Merges a step's folder into `output` (".safetensors", ".h5" or ".hdf5"). Throws InvalidArgument
/// for options that do not fit, CorruptCheckpoint naming the shard that is damaged, IoError;
/// nothing is left behind then, and a former file of that name is as it was.
MergeReport merge(const std::filesystem::path& folder, const Manifest& manifest,
                  const std::filesystem::path& output, const MergeOptions& options);

/// The same as HDF5 virtual datasets over the shards, without a copy: the shards must stay where
/// they are, seen from `output`. Types are as stored; a missing shard reads as NaN. All shards but
/// not their data are checked first.
MergeReport merge_view(const std::filesystem::path& folder, const Manifest& manifest,
                       const std::filesystem::path& output, const TensorOptions& options);

}  // namespace ration::checkpoint
