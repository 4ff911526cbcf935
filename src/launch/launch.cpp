#include <ration/launch.hpp>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/log.hpp"
#include "core/timeout.hpp"
#include "launch/run.hpp"
#include "launch/signals.hpp"

namespace ration {

bool World::stop_requested() const {
  if (stop_ && stop_->requested.load()) return true;
  return launch_signals::arrived() && !(stop_ && stop_->alarm && stop_->alarm->raised());
}

void World::request_stop() const {
  if (stop_) stop_->requested.store(true);
}

namespace {

constexpr int kMostRanks = 256;  // as threads of one process

int parse_ranks(std::string_view text, std::string_view source) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMostRanks) {
    throw InvalidArgument(fmt::format("{} is \"{}\", must be a number of ranks from 1 to {}",
                                      source, text, kMostRanks));
  }
  return value;
}

// The command line wins over the environment, which wins over the program's own wish.
int ranks_to_start(int argc, char** argv, const LaunchOptions& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view kFlag = "--ranks";
    if (argument == "--") break;
    if (argument == kFlag) {
      if (i + 1 >= argc) throw InvalidArgument("--ranks wants a number");
      return parse_ranks(argv[i + 1], "--ranks");
    }
    if (argument.starts_with(kFlag) && argument.substr(kFlag.size()).starts_with("=")) {
      return parse_ranks(argument.substr(kFlag.size() + 1), "--ranks");
    }
  }
  if (const char* value = std::getenv("RATION_RANKS")) return parse_ranks(value, "RATION_RANKS");
  const int wish = options.ranks.value_or(1);
  return parse_ranks(std::to_string(wish), "LaunchOptions::ranks");
}

}  // namespace

int launch(int argc, char** argv, const std::function<void(World&)>& body,
           const LaunchOptions& options) {
  try {
    const std::optional<JobEnvironment> environment = read_environment();
    const int ranks = ranks_to_start(argc, argv, options);
    if (options.timeout && !std::getenv("RATION_TIMEOUT")) set_operation_timeout(*options.timeout);
    const auto stop = std::make_shared<World::StopState>();
    const launch_signals::Handling handling(options.handle_signals);
    if (!environment) return launching::run_threads(ranks, body, stop);
    if (ranks != 1) {
      log::info("{} started this rank: {} ranks as threads, as was asked, are not",
                environment->launcher, ranks);
    }
    return launching::run_process(*environment, body, stop);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("ration: {}\n", error.what()).c_str(), stderr);
  }
  return 1;
}

}  // namespace ration
