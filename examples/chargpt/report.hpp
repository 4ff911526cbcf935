#pragma once
// What a run was: collected from all ranks, written as JSON.

#include <cstdint>
#include <string>
#include <vector>

#include <ration/ration.hpp>

namespace chargpt {

/// Every step's numbers, alike on all ranks but for the times.
struct History {
  std::vector<double> loss, gradient_norm, learning_rate, seconds;
};

/// One rank's numbers.
struct RankReport {
  double sent_bytes_per_step = 0;
  double control_bytes_per_step = 0;
  ration::MemoryReport memory;
  std::uint64_t process = 0;   ///< its process id: ranks may share one
  std::uint64_t peak_rss = 0;  ///< of the process, bytes
};

struct Report {
  int world = 0;
  int stage = 0;
  std::int64_t parameters = 0;
  std::string digest;
  History history;
  std::vector<RankReport> ranks;
  double seconds_per_step = 0;  ///< the median
  double tokens_per_second = 0;
};

/// What this rank has to say after `steps` steps, during which `traffic` was counted.
RankReport rank_report(const ration::MemoryReport& memory, const ration::TrafficReport& before,
                       const ration::TrafficReport& after, std::size_t steps);

/// Collective. The reports of all ranks, on every rank.
std::vector<RankReport> collect(const ration::ProcessGroup& world, const RankReport& own);

double median(std::vector<double> values);

std::string to_json(const Report& report);

/// Throws std::runtime_error naming the file.
void write_report(const Report& report, const std::string& file);

}  // namespace chargpt
