#include "postmortem/records.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

namespace ration::tools {
namespace {

namespace fs = std::filesystem;

double seconds_of(const std::string& text) {
  std::tm time{};
  double seconds = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lfZ", &time.tm_year, &time.tm_mon, &time.tm_mday,
                  &time.tm_hour, &time.tm_min, &seconds) != 6) {
    throw InvalidArgument(fmt::format("\"{}\" is no time", text));
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(timegm(&time)) + seconds;
}

PastOperation operation_of(const nlohmann::json& json) {
  PastOperation operation;
  json.at("group").get_to(operation.group);
  json.at("kind").get_to(operation.kind);
  json.at("sequence").get_to(operation.sequence);
  json.at("tag").get_to(operation.tag);
  json.at("submitted_ms").get_to(operation.submitted_ms);
  operation.done = json.at("state").get<std::string>() == "done";
  operation.channel = json.value("channel", "");
  operation.matched = json.value("matched", true);
  operation.type = json.value("type", "");
  operation.count = json.value("count", std::uint64_t{0});
  operation.peer = json.value("peer", -1);
  operation.history = json.value("history", "");
  return operation;
}

PastRank rank_of(const nlohmann::json& json) {
  constexpr int kVersion = 1;
  const int version = json.at("version").get<int>();
  if (version != kVersion) {
    throw InvalidArgument(
        fmt::format("is of version {}; this program reads version {}", version, kVersion));
  }
  PastRank rank;
  json.at("rank").get_to(rank.rank);
  json.at("world").get_to(rank.world);
  constexpr int kMostRanks = 1 << 20;
  if (rank.rank < 0 || rank.rank >= rank.world || rank.world > kMostRanks) {
    throw InvalidArgument(fmt::format("says rank {} of {}", rank.rank, rank.world));
  }
  json.at("error").get_to(rank.error);
  rank.job = json.value("job", "");
  rank.host = json.value("host", "");
  rank.began = seconds_of(json.at("began").get<std::string>());
  rank.ended = seconds_of(json.at("time").get<std::string>());
  for (const auto& group : json.at("groups")) {
    rank.groups.push_back({.name = group.at("name").get<std::string>(),
                           .rank = group.at("rank").get<int>(),
                           .size = group.at("size").get<int>()});
  }
  for (const auto& operation : json.at("operations")) {
    rank.operations.push_back(operation_of(operation));
  }
  return rank;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) files.push_back(entry.path());
  }
  if (error) throw InvalidArgument(fmt::format("{}: {}", folder.string(), error.message()));
  if (files.empty()) {
    throw InvalidArgument(
        fmt::format("{}: no rank-*.json in it; ranks of a failed job write them to "
                    "RATION_POSTMORTEM_DIR (ration-postmortem)",
                    folder.string()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Left by another job, or by an earlier start of this one. Ranks need not begin at once, and hosts'
// clocks differ: by time only where it is plain.
bool is_foreign(const PastRank& rank, const PastRank& newest) {
  constexpr double kSlack = 10;
  return rank.world != newest.world || rank.job != newest.job || rank.ended + kSlack < newest.began;
}

}  // namespace

int PastRank::rank_in(const std::string& group) const {
  for (const PastGroup& g : groups) {
    if (g.name == group) return g.rank;
  }
  return -1;
}

PastJob read_job(const fs::path& folder) {
  PastJob job;
  for (const fs::path& path : files_in(folder)) {
    try {
      std::ifstream file(path);
      PastRank rank = rank_of(nlohmann::json::parse(file));
      rank.file = path.filename().string();
      job.ranks.push_back(std::move(rank));
    } catch (const std::exception& error) {
      job.unreadable.push_back(fmt::format("{}: {}", path.filename().string(), error.what()));
    }
  }
  if (job.ranks.empty()) return job;
  const PastRank newest =
      *std::max_element(job.ranks.begin(), job.ranks.end(),
                        [](const PastRank& a, const PastRank& b) { return a.ended < b.ended; });
  job.world = newest.world;
  std::erase_if(job.ranks, [&](const PastRank& rank) {
    if (!is_foreign(rank, newest)) return false;
    job.foreign.push_back(rank.file);
    return true;
  });
  std::stable_sort(job.ranks.begin(), job.ranks.end(),
                   [](const PastRank& a, const PastRank& b) { return a.rank < b.rank; });
  for (std::size_t i = job.ranks.size(); i-- > 1;) {
    if (job.ranks[i].rank != job.ranks[i - 1].rank) continue;
    job.unreadable.push_back(fmt::format("{}: of rank {}, as {} is", job.ranks[i].file,
                                         job.ranks[i].rank, job.ranks[i - 1].file));
    job.ranks.erase(job.ranks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (int rank = 0, i = 0; rank < job.world; ++rank) {
    const auto place = static_cast<std::size_t>(i);
    if (place < job.ranks.size() && job.ranks[place].rank == rank) {
      ++i;
    } else {
      job.missing.push_back(rank);
    }
  }
  return job;
}

}  // namespace ration::tools
