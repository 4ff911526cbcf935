#pragma once
// A collective save: every rank writes its file into rank 0's temporary folder, and rank 0 commits
// when all are safe.

#include <filesystem>
#include <span>
#include <string>

#include <ration/checkpoint.hpp>

#include "checkpoint/part.hpp"
#include "control/control.hpp"

namespace ration::checkpoint {

/// What is saved; rank 0's words count.
struct SaveRequest {
  std::filesystem::path root;
  std::int64_t step = 0;
  Extra extra = {};
  int keep = 2;
  std::string already =
      {};  ///< the folder, if this very state has been saved before: checked, kept
};

/// Collective over `control`'s ranks; each gives its parts of the same optimizers. Throws, on all
/// ranks alike, IoError; the temporary folder is then gone. The deadline of a wait counts from the
/// last progress of the rank that is waited for. Any thread, one at a time.
SaveReport save(Control& control, const SaveRequest& request,
                std::span<const SavedPart* const> parts);

}  // namespace ration::checkpoint
