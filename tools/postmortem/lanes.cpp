#include "postmortem/lanes.hpp"

#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace ration::tools {
namespace {

bool is_pair(const PastOperation& operation) {
  return operation.kind == "send" || operation.kind == "recv";
}

// A lane within its group: "" for collectives, otherwise the channel or the two ranks of a pair.
struct Key {
  std::string group;
  std::string channel;
  int sender = -1;
  int receiver = -1;
  bool operator<(const Key& other) const {
    return std::tie(group, channel, sender, receiver) <
           std::tie(other.group, other.channel, other.sender, other.receiver);
  }
};

Key key_of(const PastOperation& operation, int rank_in_group) {
  Key key{.group = operation.group, .channel = operation.channel};
  if (operation.kind == "send") {
    key.sender = rank_in_group;
    key.receiver = operation.peer;
  } else if (operation.kind == "recv") {
    key.sender = operation.peer;
    key.receiver = rank_in_group;
  }
  return key;
}

// Whoever remembers the group, even if it did nothing in this lane.
std::vector<Member> members_of(const PastJob& job, const Key& key) {
  std::vector<Member> members;
  for (const PastRank& rank : job.ranks) {
    const int place = rank.rank_in(key.group);
    const bool takes_part = key.sender < 0 || place == key.sender || place == key.receiver;
    if (place >= 0 && takes_part) members.push_back({.rank = &rank, .operations = {}});
  }
  return members;
}

}  // namespace

const PastOperation* Lane::operation(int rank, std::uint64_t sequence) const {
  for (const Member& member : members) {
    if (member.rank->rank != rank) continue;
    const auto found = member.operations.find(sequence);
    return found == member.operations.end() ? nullptr : found->second;
  }
  return nullptr;
}

std::vector<Lane> lanes_of(const PastJob& job) {
  std::map<Key, Lane> lanes;
  for (const PastRank& rank : job.ranks) {
    for (const PastOperation& operation : rank.operations) {
      if (!operation.matched && !is_pair(operation)) continue;
      const Key key = key_of(operation, rank.rank_in(operation.group));
      Lane& lane = lanes[key];
      if (lane.members.empty()) {
        lane.group = key.group;
        lane.members = members_of(job, key);
      }
      for (Member& member : lane.members) {
        if (member.rank == &rank) member.operations[operation.sequence] = &operation;
      }
    }
  }
  std::vector<Lane> result;
  for (auto& [key, lane] : lanes) result.push_back(std::move(lane));
  return result;
}

std::string describe(const PastOperation& operation) {
  std::string text =
      operation.kind == "fold"
          ? fmt::format("fold #{} of channel {}", operation.sequence, operation.channel)
          : fmt::format("{} #{}", operation.kind, operation.sequence);
  if (!operation.tag.empty()) text += fmt::format(" \"{}\"", operation.tag);
  if (!operation.type.empty()) {
    text += fmt::format(" ({} x {}", operation.type, operation.count);
    if (operation.kind == "broadcast") text += fmt::format(", root {}", operation.peer);
    if (operation.kind == "send") text += fmt::format(", to {}", operation.peer);
    if (operation.kind == "recv") text += fmt::format(", from {}", operation.peer);
    text += ")";
  }
  return text + " of " + operation.group;
}

std::string signature(const PastOperation& operation) {
  const int root = operation.kind == "broadcast" ? operation.peer : -1;
  return fmt::format("{}\n{}\n{}\n{}\n{}", is_pair(operation) ? "pair" : operation.kind,
                     operation.type, operation.count, root, operation.tag);
}

}  // namespace ration::tools
