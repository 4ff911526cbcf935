#include "core/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace ration {
namespace {

LogLevel level_from_environment() {
  const char* value = std::getenv("RATION_LOG");
  const std::string_view text = value ? value : "";
  if (text == "debug") return LogLevel::debug;
  if (text == "info") return LogLevel::info;
  if (text == "off") return LogLevel::off;
  if (!text.empty() && text != "warning") {
    std::fprintf(stderr,
                 "ration warning: RATION_LOG is \"%s\", must be debug, info, warning or off\n",
                 value);
  }
  return LogLevel::warning;
}

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> value{level_from_environment()};
  return value;
}

struct Sink {
  std::mutex mutex;
  LogSink function;
};

Sink& sink() {
  static Sink value;
  return value;
}

thread_local int rank_of_thread = -1;

constexpr std::string_view kNames[] = {"debug", "info", "warning", "off"};

}  // namespace

void set_log_sink(LogSink function) {
  const std::lock_guard lock(sink().mutex);
  sink().function = std::move(function);
}

void set_log_level(LogLevel value) {
  level().store(value);
}

namespace log {

bool enabled(LogLevel value) {
  return value >= level().load(std::memory_order_relaxed);
}

void write(LogLevel value, std::string_view line) {
  const std::lock_guard lock(sink().mutex);
  if (sink().function) {
    sink().function(value, rank_of_thread, line);
    return;
  }
  const std::string where = rank_of_thread < 0 ? "" : fmt::format(" rank {}:", rank_of_thread);
  const std::string text =
      fmt::format("ration {}:{} {}\n", kNames[static_cast<int>(value)], where, line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

int thread_rank() {
  return rank_of_thread;
}
void set_thread_rank(int rank) {
  rank_of_thread = rank;
}

}  // namespace log
}  // namespace ration
