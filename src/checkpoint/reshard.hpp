#pragma once
// A checkpoint written again: as another number of ranks would have saved it, or made of weights
// that another program wrote.

#include <filesystem>

#include "checkpoint/folders.hpp"
#include "checkpoint/foreign.hpp"
#include "checkpoint/merge.hpp"

namespace ration::checkpoint {

/// Writes a step into the root `to` as `world` ranks would have saved it; the data is the same,
/// byte by byte. Streams. Throws CorruptCheckpoint, IoError; nothing is left behind then.
StepFolder reshard(const std::filesystem::path& folder, const Manifest& manifest,
                   const std::filesystem::path& to, int world, const Progress& progress = {});

/// Writes weights as a checkpoint of one rank: an optimizer `optimizer` with one unit, the tensors
/// by name, no optimizer state, so that a load starts its own.
StepFolder import(const ForeignFile& file, const std::filesystem::path& to, std::int64_t step,
                  const std::string& optimizer, const Progress& progress = {});

}  // namespace ration::checkpoint
