#include <ration/launch.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/threads/threads.hpp"
#include "core/log.hpp"
#include "launch/signals.hpp"

namespace ration {

struct World::StopState {
  std::atomic<bool> requested{false};
};

bool World::stop_requested() const {
  return launch_signals::arrived() || (stop_ && stop_->requested.load());
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

std::string one_line(int rank, std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  const std::string prefix = fmt::format("rank {}:", rank);
  return line.starts_with("rank ") ? line : prefix + " " + line;
}

// The first failure of a job: its text is what is printed, and what the other ranks are told. A
// rank that only heard of another's failure may report before that one does; the cause is what is
// printed all the same.
class FirstFailure {
 public:
  void report(const ProcessGroup& group, int rank, std::string_view text, bool is_cause) {
    const std::lock_guard lock(mutex_);
    std::string& kept = is_cause ? cause_ : heard_;
    if (kept.empty()) kept = one_line(rank, text);
    group.abort(kept);
  }
  [[nodiscard]] const std::string& text() const { return cause_.empty() ? heard_ : cause_; }

 private:
  std::mutex mutex_;
  std::string cause_;
  std::string heard_;
};

}  // namespace

int launch(int argc, char** argv, const std::function<void(World&)>& body,
           const LaunchOptions& options) {
  try {
    const int ranks = ranks_to_start(argc, argv, options);
    const std::vector<std::shared_ptr<Communicator>> communicators = make_threads(ranks);
    const auto stop = std::make_shared<World::StopState>();
    const launch_signals::Handling handling(options.handle_signals);
    FirstFailure failure;
    const auto run = [&](int rank) {
      log::set_thread_rank(rank);
      World world(ProcessGroup(communicators[static_cast<std::size_t>(rank)]), stop);
      try {
        body(world);
        world.communicator()->depart();
      } catch (const RemoteError& error) {
        failure.report(world, rank, error.what(), false);
      } catch (const std::exception& error) {
        failure.report(world, rank, error.what(), true);
      } catch (...) {
        failure.report(world, rank, "an exception that is no std::exception", true);
      }
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
    for (std::thread& thread : threads) thread.join();
    if (failure.text().empty()) return 0;
    std::fputs(("ration: " + failure.text() + "\n").c_str(), stderr);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("ration: {}\n", error.what()).c_str(), stderr);
  }
  return 1;
}

}  // namespace ration
