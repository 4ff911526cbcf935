#include "comm/postmortem.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include <unistd.h>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "core/log.hpp"

namespace ration {
namespace {

namespace fs = std::filesystem;

// 2026-11-30T19:58:01.123Z: such texts sort as the times do.
std::string as_text(std::chrono::system_clock::time_point time) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (milliseconds - seconds).count());
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string contents(const Recording& recording, int rank, int world, std::string_view error,
                     std::string_view job) {
  auto groups = nlohmann::json::array();
  for (const RecordedGroup& group : recording.groups()) {
    groups.push_back({{"name", group.name}, {"rank", group.rank}, {"size", group.size}});
  }
  const nlohmann::json header{{"version", 1},
                              {"rank", rank},
                              {"world", world},
                              {"job", job},
                              {"host", host_name()},
                              {"pid", getpid()},
                              {"error", error},
                              {"began", as_text(recording.began())},
                              {"time", as_text(std::chrono::system_clock::now())},
                              {"groups", std::move(groups)}};
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  return text + ",\"operations\":" + recording.json() + "}\n";
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw IoError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

std::string postmortem_directory() {
  const char* value = std::getenv("RATION_POSTMORTEM_DIR");
  return value && *value ? value : "ration-postmortem";
}

std::string write_postmortem(const Recording& recording, int rank, int world,
                             std::string_view error, std::string_view job) {
  static std::mutex mutex;  // a rank may fail in two threads at once
  const std::lock_guard lock(mutex);
  try {
    const fs::path folder = postmortem_directory();
    fs::create_directories(folder);
    const fs::path path = folder / fmt::format("rank-{:05}.json", rank);
    const fs::path unfinished = fmt::format("{}.{}.unfinished", path.string(), getpid());
    try {
      write(unfinished, contents(recording, rank, world, error, job));
      fs::rename(unfinished, path);
    } catch (...) {
      std::error_code ignored;
      fs::remove(unfinished, ignored);
      throw;
    }
    return path.string();
  } catch (const std::exception& failure) {
    log::warning("rank {}: no record of its last operations was written: {}", rank, failure.what());
  } catch (...) {
    log::warning("rank {}: no record of its last operations was written", rank);
  }
  return {};
}

}  // namespace ration
