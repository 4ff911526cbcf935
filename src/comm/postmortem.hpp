#pragma once
// What a rank leaves behind when its job fails: its last operations in a file, which
// `ration postmortem` compares with those of the other ranks.

#include <string>
#include <string_view>

#include "comm/decorators/decorators.hpp"

namespace ration {

/// The folder for such files: RATION_POSTMORTEM_DIR, or "ration-postmortem" in the current one.
std::string postmortem_directory();

/// Writes `rank-00003.json` into that folder, made if missing, in place of one that is there: under
/// another name first, so that a reader never sees half of it. `job` tells the files of one job
/// from those that another left. Returns its path. Throws nothing: if it cannot be written, a
/// warning is logged and the result is empty. Any thread.
std::string write_postmortem(const Recording& recording, int rank, int world,
                             std::string_view error, std::string_view job = {});

}  // namespace ration
