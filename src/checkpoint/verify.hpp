#pragma once
// Whether a committed step is still what was saved.

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/merge.hpp"

namespace ration::checkpoint {

struct Fault {
  std::string file = {};    ///< as a path
  std::string reason = {};  ///< in one line
};

struct Verdict {
  std::vector<Fault> faults = {};  ///< one per broken file; the manifest and coverage, too
  std::uint64_t bytes = 0;         ///< of state that was read and is right
};

/// Reads everything: manifest, each shard's size, tables, rest and every block, and that together
/// the shards hold each element exactly once. Goes on behind a broken file. Throws nothing for
/// what it finds.
Verdict verify(const std::filesystem::path& folder, const Progress& progress = {});

}  // namespace ration::checkpoint
