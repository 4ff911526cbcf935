#pragma once
// Which rank of a failed job diverged or stopped, and at which operation.

#include <string>
#include <vector>

#include "postmortem/records.hpp"

namespace ration::tools {

struct Finding {
  enum class Kind {
    diverged,    ///< it did something else than the others
    stopped,     ///< it never came to what the others wait in
    deadlocked,  ///< ranks wait for each other, in different operations
    no_record,   ///< it left no file: killed, or stopped
    failed,      ///< it failed, and the others because of it
    unreadable   ///< a file
  };
  Kind kind{};
  std::vector<int> ranks;  ///< whom it names
  std::string operation;   ///< the first that did not match, as in messages; may be empty
  std::string text;        ///< a sentence
};
std::string_view name_of(Finding::Kind kind);

struct Diagnosis {
  std::vector<Finding> findings;     ///< the likeliest cause first; none: nothing is wrong
  std::vector<std::string> waiting;  ///< who was in which operation when the job ended
};

Diagnosis diagnose(const PastJob& job);

/// `rank 3`; `ranks 0-2, 7`
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace ration::tools
