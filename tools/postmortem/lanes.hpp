#pragma once
// What must match across ranks, put side by side: a lane is one sequence of operations that several
// ranks take part in (a group's collectives, a channel's folds, the messages of one pair).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "postmortem/records.hpp"

namespace ration::tools {

/// What one member did of a lane.
struct Member {
  const PastRank* rank = nullptr;
  std::map<std::uint64_t, const PastOperation*> operations;  ///< by sequence

  /// Its last sequence; -1: none. Only where `is_known`.
  [[nodiscard]] std::int64_t last() const {
    return operations.empty() ? -1 : static_cast<std::int64_t>(operations.rbegin()->first);
  }
  /// False where what it did may have been forgotten since.
  [[nodiscard]] bool is_known() const { return !operations.empty() || !rank->forgot(); }
};

struct Lane {
  std::string group;
  std::vector<Member> members;  ///< by rank; those that left a file

  [[nodiscard]] const PastOperation* operation(int rank, std::uint64_t sequence) const;
};

std::vector<Lane> lanes_of(const PastJob& job);

/// `reduce_scatter #17 "h.3" (bf16 x 4096) of world/1:0`
std::string describe(const PastOperation& operation);
/// What must be equal on all ranks of a lane.
std::string signature(const PastOperation& operation);

}  // namespace ration::tools
