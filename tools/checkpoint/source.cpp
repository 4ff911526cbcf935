#include "checkpoint/source.hpp"

#include <array>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "checkpoint/load.hpp"

namespace ration::tools {

void add_step_choice(CLI::App& command, StepChoice& choice) {
  command
      .add_option("DIR", choice.folder,
                  "Folder of checkpoints (the newest step is taken) or of one step")
      ->required();
  command.add_option("--step", choice.step, "The step to take instead of the newest");
}

Source open_source(const StepChoice& choice) {
  const checkpoint::Found found = checkpoint::find(choice.folder, {.step = choice.step});
  return {found.folder, checkpoint::parse_manifest(
                            found.text, (found.folder / checkpoint::kManifestName).string())};
}

checkpoint::Progress progress_bar(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  using Clock = std::chrono::steady_clock;
  return [what = std::move(what), begin = Clock::now(), drawn = Clock::time_point()](
             std::uint64_t done, std::uint64_t total) mutable {
    const Clock::time_point now = Clock::now();
    if (done < total && now - drawn < std::chrono::milliseconds(100)) return;
    drawn = now;
    constexpr std::size_t kWidth = 30;
    const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    const double seconds = std::chrono::duration<double>(now - begin).count();
    const std::string full(static_cast<std::size_t>(part * kWidth), '#');
    const double speed = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    fmt::print(stderr, "\r{} [{:<{}}] {:3.0f} %  {}/s {}", what, full, kWidth, part * 100,
               bytes_text(static_cast<std::uint64_t>(speed)), done < total ? "" : "\n");
    std::fflush(stderr);
  };
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

void print_json(const nlohmann::json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace ration::tools
