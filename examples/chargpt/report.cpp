#include "report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace chargpt {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kFields = 5 + 2 * ration::kMemoryKinds;

std::uint64_t peak_rss() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

Json memory_json(const std::array<std::uint64_t, ration::kMemoryKinds>& bytes) {
  Json json;
  for (const auto kind : {ration::MemoryKind::parameters, ration::MemoryKind::gradients,
                          ration::MemoryKind::optimizer_state, ration::MemoryKind::buffers,
                          ration::MemoryKind::snapshot}) {
    json[std::string(ration::name_of(kind))] = bytes[static_cast<std::size_t>(kind)];
  }
  return json;
}

}  // namespace

RankReport rank_report(const ration::MemoryReport& memory, const ration::TrafficReport& before,
                       const ration::TrafficReport& after, std::size_t steps) {
  const auto per_step = [&](std::uint64_t first, std::uint64_t last) {
    return steps == 0 ? 0.0 : static_cast<double>(last - first) / static_cast<double>(steps);
  };
  return {.sent_bytes_per_step = per_step(before.sent_bytes, after.sent_bytes),
          .control_bytes_per_step = per_step(before.control_bytes, after.control_bytes),
          .memory = memory,
          .process = static_cast<std::uint64_t>(getpid()),
          .peak_rss = peak_rss()};
}

std::vector<RankReport> collect(const ration::ProcessGroup& world, const RankReport& own) {
  // A sum in which each rank fills its own places; doubles hold bytes exactly up to 2^53.
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<double> all(size * kFields, 0.0);
  double* mine = all.data() + static_cast<std::size_t>(world.rank()) * kFields;
  *mine++ = own.sent_bytes_per_step;
  *mine++ = own.control_bytes_per_step;
  *mine++ = static_cast<double>(own.process);
  *mine++ = static_cast<double>(own.peak_rss);
  *mine++ = static_cast<double>(own.memory.disk);
  for (const auto bytes : own.memory.planned) *mine++ = static_cast<double>(bytes);
  for (const auto bytes : own.memory.allocated) *mine++ = static_cast<double>(bytes);
  world.all_reduce(all);

  std::vector<RankReport> reports(size);
  const double* next = all.data();
  for (RankReport& report : reports) {
    report.sent_bytes_per_step = *next++;
    report.control_bytes_per_step = *next++;
    report.process = static_cast<std::uint64_t>(*next++);
    report.peak_rss = static_cast<std::uint64_t>(*next++);
    report.memory.disk = static_cast<std::uint64_t>(*next++);
    for (auto& bytes : report.memory.planned) bytes = static_cast<std::uint64_t>(*next++);
    for (auto& bytes : report.memory.allocated) bytes = static_cast<std::uint64_t>(*next++);
  }
  return reports;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string to_json(const Report& report) {
  Json traffic = Json::array(), memory = Json::array();
  std::map<std::uint64_t, std::uint64_t> processes;
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankReport& own = report.ranks[rank];
    traffic.push_back({{"rank", rank},
                       {"sent_bytes_per_step", own.sent_bytes_per_step},
                       {"control_bytes_per_step", own.control_bytes_per_step}});
    memory.push_back({{"rank", rank},
                      {"planned", memory_json(own.memory.planned)},
                      {"allocated", memory_json(own.memory.allocated)},
                      {"disk", own.memory.disk}});
    auto& peak = processes[own.process];
    peak = std::max(peak, own.peak_rss);
  }
  std::uint64_t peak = 0;
  for (const auto& [process, bytes] : processes) peak += bytes;

  const Json json = {{"world", report.world},
                     {"stage", report.stage},
                     {"parameters", report.parameters},
                     {"digest", report.digest},
                     {"loss", report.history.loss},
                     {"gradient_norm", report.history.gradient_norm},
                     {"learning_rate", report.history.learning_rate},
                     {"traffic", traffic},
                     {"memory", memory},
                     {"peak_rss", peak},
                     {"seconds_per_step", report.seconds_per_step},
                     {"tokens_per_second", report.tokens_per_second}};
  return json.dump(1);
}

void write_report(const Report& report, const std::string& file) {
  std::ofstream out(file);
  out << to_json(report) << '\n';
  out.flush();
  if (!out) throw std::runtime_error("cannot write " + file + ": " + std::strerror(errno));
}

}  // namespace chargpt
