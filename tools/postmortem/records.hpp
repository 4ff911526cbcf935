#pragma once
// The files that ranks of a failed job left behind (src/comm/postmortem.hpp), read again.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ration::tools {

struct PastOperation {
  std::string group;
  std::string kind;
  std::string channel;  ///< of a fold
  std::uint64_t sequence = 0;
  bool matched = true;
  std::string type;
  std::uint64_t count = 0;
  std::string tag;
  int peer = -1;
  std::string history;  ///< empty: none kept
  bool done = false;
  double submitted_ms = 0;
};

struct PastGroup {
  std::string name;
  int rank = 0;
  int size = 1;
};

/// What one rank left.
struct PastRank {
  std::string file;
  int rank = 0;
  int world = 1;
  std::string job;
  std::string host;
  std::string error;
  double began = 0;  ///< seconds since 1970
  double ended = 0;
  std::vector<PastGroup> groups;
  std::vector<PastOperation> operations;  ///< oldest first

  /// The rank's number in the group; -1: not a member, as far as it remembers.
  [[nodiscard]] int rank_in(const std::string& group) const;
  /// Older operations than these were kept no longer.
  [[nodiscard]] bool forgot() const { return operations.size() >= 1024; }
};

struct PastJob {
  int world = 0;
  std::vector<PastRank> ranks;          ///< by rank; those that left a file
  std::vector<int> missing;             ///< those that left none
  std::vector<std::string> unreadable;  ///< `FILE: why`
  std::vector<std::string> foreign;     ///< files of another job than the last that failed
};

/// Throws InvalidArgument when there is no such folder, or no such file in it.
PastJob read_job(const std::filesystem::path& folder);

}  // namespace ration::tools
