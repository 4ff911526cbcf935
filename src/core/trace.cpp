#include "core/trace.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "core/log.hpp"

namespace ration::trace {
namespace {

constexpr std::size_t kMaxSpans = std::size_t{1} << 20;

struct Record {
  const char* what;
  const char* stream;
  int rank;
  std::int64_t start;
  std::int64_t end;
  char detail[48];
};

struct Recorder {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::vector<Record> records;
  std::size_t dropped = 0;
};

Recorder& recorder() {
  static Recorder value;
  return value;
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool recording() {
  return recorder().on.load(std::memory_order_relaxed);
}

void Span::begin(const char* what, std::string_view detail, const char* stream) {
  what_ = what;
  stream_ = stream;
  const std::size_t n = std::min(detail.size(), sizeof detail_ - 1);
  std::memcpy(detail_, detail.data(), n);
  start_ = now();
}

void Span::end() {
  Record record{what_, stream_, log::thread_rank(), start_, now(), {}};
  std::memcpy(record.detail, detail_, sizeof detail_);
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (r.records.size() < kMaxSpans) {
    r.records.push_back(record);
  } else {
    ++r.dropped;
  }
}

void start() {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  r.records.clear();
  r.dropped = 0;
  r.on.store(true);
}

void write(const std::string& path) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  r.on.store(false);
  if (r.dropped)
    log::warning("trace: {} spans beyond the first {} were dropped", r.dropped, kMaxSpans);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) throw IoError(fmt::format("trace {}: {}", path, std::strerror(errno)));

  // A process per rank and a thread per stream, named by metadata events.
  std::map<std::pair<int, std::string>, int> threads;
  std::int64_t origin = r.records.empty() ? 0 : r.records.front().start;
  for (const Record& record : r.records) {
    origin = std::min(origin, record.start);
    threads.try_emplace({record.rank, record.stream}, static_cast<int>(threads.size()) + 1);
  }
  bool good = std::fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file) >= 0;
  const char* separator = "";
  // A name may be no UTF-8, or be cut within a character.
  const auto emit = [&](const nlohmann::json& event) {
    good = good &&
           std::fprintf(
               file, "%s%s", separator,
               event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str()) >= 0;
    separator = ",\n";
  };
  for (const auto& [key, id] : threads) {
    emit({{"ph", "M"},
          {"name", "process_name"},
          {"pid", key.first},
          {"args", {{"name", key.first < 0 ? "process" : fmt::format("rank {}", key.first)}}}});
    emit({{"ph", "M"},
          {"name", "thread_name"},
          {"pid", key.first},
          {"tid", id},
          {"args", {{"name", key.second}}}});
  }
  for (const Record& record : r.records) {
    emit({{"ph", "X"},
          {"name", record.what},
          {"cat", record.stream},
          {"pid", record.rank},
          {"tid", threads.at({record.rank, record.stream})},
          {"ts", static_cast<double>(record.start - origin) / 1e3},
          {"dur", static_cast<double>(record.end - record.start) / 1e3},
          {"args", {{"of", record.detail}}}});
  }
  good = good && std::fputs("\n]}\n", file) >= 0;
  const bool closed = std::fclose(file) == 0;
  if (!good || !closed) throw IoError(fmt::format("trace {}: {}", path, std::strerror(errno)));
}

}  // namespace ration::trace
