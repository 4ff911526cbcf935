#include "postmortem/diagnosis.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "postmortem/lanes.hpp"

namespace ration::tools {
namespace {

using Ranks = std::vector<int>;

/// The first operation of a lane in which ranks differ.
struct Difference {
  double time = 0;  ///< to find the first of all lanes
  Finding finding;
};

// Who did what at one place of a lane: the many first.
std::vector<std::pair<const PastOperation*, Ranks>> by_signature(const Lane& lane,
                                                                 std::uint64_t sequence) {
  std::map<std::string, std::pair<const PastOperation*, Ranks>> sorted;
  for (const Member& member : lane.members) {
    const auto found = member.operations.find(sequence);
    if (found == member.operations.end()) continue;
    auto& [operation, ranks] = sorted[signature(*found->second)];
    if (!operation) operation = found->second;
    ranks.push_back(member.rank->rank);
  }
  std::vector<std::pair<const PastOperation*, Ranks>> result;
  for (auto& [text, pair] : sorted) result.push_back(std::move(pair));
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return std::pair(b.second.size(), a.second.front()) <
           std::pair(a.second.size(), b.second.front());
  });
  return result;
}

Finding difference_at(const std::vector<std::pair<const PastOperation*, Ranks>>& sides) {
  const auto& [usual, many] = sides.front();
  const bool tie = sides[1].second.size() == many.size();
  Finding finding{.kind = Finding::Kind::diverged, .operation = describe(*usual)};
  std::vector<std::string> others;
  for (auto side = sides.begin() + 1; side != sides.end(); ++side) {
    others.push_back(fmt::format("{} called {}", name_ranks(side->second), describe(*side->first)));
    finding.ranks.insert(finding.ranks.end(), side->second.begin(), side->second.end());
  }
  finding.text =
      fmt::format("{} where {} called {}{}", fmt::join(others, ", and "), name_ranks(many),
                  describe(*usual), tie ? "; no side has the majority" : "");
  if (tie) finding.ranks.insert(finding.ranks.begin(), many.begin(), many.end());
  std::sort(finding.ranks.begin(), finding.ranks.end());
  return finding;
}

// Equal here, but not what came before it, which is kept no longer (or was too much alike).
std::optional<Finding> different_past(const Lane& lane, std::uint64_t sequence) {
  std::map<std::string, Ranks> histories;
  const PastOperation* some = nullptr;
  for (const Member& member : lane.members) {
    const auto found = member.operations.find(sequence);
    if (found == member.operations.end() || found->second->history.empty()) continue;
    some = found->second;
    histories[some->history].push_back(member.rank->rank);
  }
  if (histories.size() < 2) return std::nullopt;
  auto many = histories.begin();
  for (auto side = histories.begin(); side != histories.end(); ++side) {
    if (std::pair(many->second.size(), side->second.front()) <
        std::pair(side->second.size(), many->second.front())) {
      many = side;
    }
  }
  Finding finding{.kind = Finding::Kind::diverged, .operation = describe(*some)};
  for (auto side = histories.begin(); side != histories.end(); ++side) {
    if (side == many) continue;
    finding.ranks.insert(finding.ranks.end(), side->second.begin(), side->second.end());
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.text = fmt::format(
      "{} had called other operations than {} before {} (which were kept no longer, or "
      "differ in what is not kept)",
      name_ranks(finding.ranks), name_ranks(many->second), describe(*some));
  return finding;
}

std::optional<Difference> first_difference(const Lane& lane) {
  std::set<std::uint64_t> sequences;
  for (const Member& member : lane.members) {
    for (const auto& [sequence, operation] : member.operations) sequences.insert(sequence);
  }
  for (const std::uint64_t sequence : sequences) {
    const auto sides = by_signature(lane, sequence);
    const double time = sides.front().first->submitted_ms;
    if (sides.size() > 1) return Difference{time, difference_at(sides)};
    if (auto finding = different_past(lane, sequence)) return Difference{time, std::move(*finding)};
  }
  return std::nullopt;
}

/// A place of a lane where some ranks were when the job ended.
struct Wait {
  const PastOperation* operation = nullptr;
  Ranks waiting;
  Ranks absent;  ///< had not come to it
};

std::optional<Wait> first_wait(const Lane& lane) {
  std::optional<std::uint64_t> first;
  for (const Member& member : lane.members) {
    for (const auto& [sequence, operation] : member.operations) {
      if (operation->done) continue;
      first = std::min(first.value_or(sequence), sequence);
      break;
    }
  }
  if (!first) return std::nullopt;
  Wait wait;
  for (const Member& member : lane.members) {
    const auto found = member.operations.find(*first);
    if (found == member.operations.end()) {
      const bool before = member.last() < static_cast<std::int64_t>(*first);
      if (before && member.is_known()) wait.absent.push_back(member.rank->rank);
    } else if (!found->second->done) {
      wait.operation = found->second;
      wait.waiting.push_back(member.rank->rank);
    }
  }
  return wait;
}

const PastRank& record_of(const PastJob& job, int rank) {
  return *std::find_if(job.ranks.begin(), job.ranks.end(),
                       [&](const PastRank& r) { return r.rank == rank; });
}

// Whom a rank's error begins with: `rank 2: ...` is rank 2's own, wherever it is told, and `rank 2
// has died` speaks of it. Without a name it is the rank's own.
int accused_by(const PastRank& rank) {
  constexpr std::string_view kPrefix = "rank ";
  int named = rank.rank;
  if (rank.error.starts_with(kPrefix)) {
    const char* end = rank.error.data() + rank.error.size();
    std::from_chars(rank.error.data() + kPrefix.size(), end, named);
  }
  return named;
}

std::string last_of(const PastRank& rank) {
  if (rank.operations.empty()) return "had not called any operation";
  const PastOperation& last = rank.operations.back();
  return fmt::format("called {} last{}", describe(last), last.done ? "" : ", which was not done");
}

// Ranks that others wait for and that wait for nobody themselves; where there are none, all wait
// for each other.
void add_stopped(const PastJob& job, const std::vector<Wait>& waits, Diagnosis& diagnosis) {
  std::set<int> waiting;
  std::map<int, const Wait*> awaited;  // the rank, and where for it
  for (const Wait& wait : waits) {
    if (wait.absent.empty()) continue;
    waiting.insert(wait.waiting.begin(), wait.waiting.end());
    for (const int rank : wait.absent) awaited.emplace(rank, &wait);
  }
  bool found = false;
  for (const auto& [rank, wait] : awaited) {
    if (waiting.contains(rank)) continue;
    found = true;
    diagnosis.findings.push_back(
        {.kind = Finding::Kind::stopped,
         .ranks = {rank},
         .operation = describe(*wait->operation),
         .text = fmt::format("rank {} never came to {}, in which {} waited; it {}", rank,
                             describe(*wait->operation), name_ranks(wait->waiting),
                             last_of(record_of(job, rank)))});
  }
  if (found || awaited.empty()) return;
  Finding finding{.kind = Finding::Kind::deadlocked};
  std::vector<std::string> parts;
  for (const Wait& wait : waits) {
    if (wait.absent.empty()) continue;
    if (finding.operation.empty()) finding.operation = describe(*wait.operation);
    parts.push_back(fmt::format("{} waited in {} for {}", name_ranks(wait.waiting),
                                describe(*wait.operation), name_ranks(wait.absent)));
  }
  for (const auto& [rank, wait] : awaited) finding.ranks.push_back(rank);
  finding.text =
      fmt::format("{}: they call operations in different orders", fmt::join(parts, "; "));
  diagnosis.findings.push_back(std::move(finding));
}

// What was said first, by the clocks of the hosts: if possible by a rank of itself.
void add_failed(const PastJob& job, Diagnosis& diagnosis) {
  const PastRank* first = nullptr;
  for (const PastRank& rank : job.ranks) {
    if (rank.error.empty()) continue;
    const auto order = [](const PastRank& r) {
      return std::pair(accused_by(r) != r.rank, r.ended);
    };
    if (!first || order(rank) < order(*first)) first = &rank;
  }
  if (!first) return;
  const bool own = accused_by(*first) == first->rank;
  diagnosis.findings.push_back(
      {.kind = Finding::Kind::failed,
       .ranks = {accused_by(*first)},
       .text = fmt::format("rank {} {}: {}", first->rank, own ? "failed first" : "heard first",
                           first->error)});
}

}  // namespace

std::string_view name_of(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::diverged:
      return "diverged";
    case Finding::Kind::stopped:
      return "stopped";
    case Finding::Kind::deadlocked:
      return "deadlocked";
    case Finding::Kind::no_record:
      return "no_record";
    case Finding::Kind::failed:
      return "failed";
    case Finding::Kind::unreadable:
      return "unreadable";
  }
  return "?";
}

std::string name_ranks(const Ranks& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2) {
      parts.push_back(fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    } else {
      for (std::size_t j = i; j < end; ++j) parts.push_back(std::to_string(ranks[j]));
    }
    i = end;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(parts, ", "));
}

Diagnosis diagnose(const PastJob& job) {
  Diagnosis diagnosis;
  const std::vector<Lane> lanes = lanes_of(job);
  std::vector<Difference> differences;
  std::vector<Wait> waits;
  for (const Lane& lane : lanes) {
    if (auto difference = first_difference(lane)) differences.push_back(std::move(*difference));
    if (auto wait = first_wait(lane)) waits.push_back(std::move(*wait));
  }
  std::stable_sort(differences.begin(), differences.end(),
                   [](const Difference& a, const Difference& b) { return a.time < b.time; });
  for (Difference& d : differences) diagnosis.findings.push_back(std::move(d.finding));
  if (!job.missing.empty()) {
    diagnosis.findings.push_back(
        {.kind = Finding::Kind::no_record,
         .ranks = job.missing,
         .text = fmt::format("{} left no record: killed, stopped, or ended before the others; or "
                             "its file lies on another host",
                             name_ranks(job.missing))});
  } else if (differences.empty()) {
    // Where a rank is gone, or does other things, that some are behind is no surprise.
    add_stopped(job, waits, diagnosis);
  }
  add_failed(job, diagnosis);
  for (const std::string& file : job.unreadable) {
    diagnosis.findings.push_back(
        {.kind = Finding::Kind::unreadable, .text = fmt::format("cannot be read: {}", file)});
  }
  for (const Wait& wait : waits) {
    std::string line =
        fmt::format("{} waited in {}", name_ranks(wait.waiting), describe(*wait.operation));
    if (!wait.absent.empty()) line += fmt::format("; {} not come to it", name_ranks(wait.absent));
    diagnosis.waiting.push_back(std::move(line));
  }
  return diagnosis;
}

}  // namespace ration::tools
