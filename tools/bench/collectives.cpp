// `ration bench collectives`: the library's collectives beside others' and beside a triad.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/launch.hpp>

#include "bench/measure.hpp"
#include "commands.hpp"
#include "launch/environment.hpp"

namespace ration::tools {
namespace {

struct Options {
  std::vector<std::size_t> mebibytes{1, 16, 256};
  std::vector<int> ranks{2, 4};
  int rounds = 0;
  bool overlap = false;
  bool json = false;
};

/// What rank 0 has seen.
struct Results {
  std::vector<Measured> collectives;
  std::vector<Overlap> overlaps;
};

nlohmann::json as_json(const Measured& measured) {
  const double own = measured.timings.front().seconds.value_or(0);
  const double triad = measured.timings.back().seconds.value_or(0);
  auto peers = nlohmann::json::array();
  for (std::size_t i = 1; i + 1 < measured.timings.size(); ++i) {
    const Timing& timing = measured.timings[i];
    nlohmann::json peer{{"name", timing.name}, {"seconds", nullptr}, {"ratio", nullptr}};
    if (timing.seconds) {
      peer["seconds"] = *timing.seconds;
      peer["ratio"] = *timing.seconds / own;
    }
    peers.push_back(std::move(peer));
  }
  return {{"operation", name_of(measured.kind)},
          {"backend", measured.backend},
          {"bytes", measured.bytes},
          {"ranks", measured.ranks},
          {"rounds", measured.rounds},
          {"seconds", own},
          {"peers", std::move(peers)},
          {"triad_seconds", triad},
          {"ratio", own / triad}};
}

void print_json(const Results& results) {
  nlohmann::json all = nlohmann::json::object();
  if (!results.overlaps.empty()) {
    all["overlap"] = nlohmann::json::array();
    for (const Overlap& one : results.overlaps) {
      all["overlap"].push_back({{"operation", name_of(OperationKind::reduce_scatter)},
                                {"bytes", one.bytes},
                                {"ranks", one.ranks},
                                {"rounds", one.rounds},
                                {"seconds", one.seconds},
                                {"left_by_work_seconds", one.left_by_work},
                                {"left_by_clock_seconds", one.left_by_clock},
                                {"slowdown", one.slowdown}});
    }
  } else {
    all["backend"] = results.collectives.front().backend;
    all["collectives"] = nlohmann::json::array();
    for (const Measured& one : results.collectives) all["collectives"].push_back(as_json(one));
  }
  fmt::print("{}\n", all.dump(2));
}

void print_collectives(const std::vector<Measured>& collectives) {
  fmt::print(
      "ours: {}. Times are medians; a ratio is the other's time by ours, of the triad ours by "
      "its\n",
      collectives.front().backend);
  fmt::print("{:<15} {:>5} {:>6}", "operation", "ranks", "MiB");
  for (const Timing& timing : collectives.front().timings) {
    fmt::print(" {:>11}", timing.name + " ms");
    if (timing.name != "ours") fmt::print(" {:>6}", "ratio");
  }
  fmt::print("\n");
  for (const Measured& one : collectives) {
    fmt::print("{:<15} {:>5} {:>6}", name_of(one.kind), one.ranks, one.bytes >> 20);
    const double own = one.timings.front().seconds.value_or(0);
    for (std::size_t i = 0; i < one.timings.size(); ++i) {
      if (!one.timings[i].seconds) {
        fmt::print(" {:>11} {:>6}", "-", "-");
        continue;
      }
      const double seconds = *one.timings[i].seconds;
      fmt::print(" {:>11.3f}", seconds * 1e3);
      const bool triad = i + 1 == one.timings.size();
      if (i > 0) fmt::print(" {:>6.2f}", triad ? own / seconds : seconds / own);
    }
    fmt::print("\n");
  }
}

void print_overlaps(const std::vector<Overlap>& overlaps) {
  fmt::print(
      "T: a reduce_scatter alone. Left of it after arithmetic that takes 2 T alone (work), or "
      "until "
      "2 T have passed (clock); slowdown: of that arithmetic by the reduce\n");
  fmt::print("{:>5} {:>6} {:>10} {:>12} {:>12} {:>8}\n", "ranks", "MiB", "T ms", "left/T work",
             "left/T clock", "slowdown");
  for (const Overlap& one : overlaps) {
    fmt::print("{:>5} {:>6} {:>10.3f} {:>12.3f} {:>12.3f} {:>8.2f}\n", one.ranks, one.bytes >> 20,
               one.seconds * 1e3, one.left_by_work / one.seconds, one.left_by_clock / one.seconds,
               one.slowdown);
  }
}

/// What a rank does.
void measure(Communicator& communicator, const Options& options, bool processes, Results& results) {
  Results own;
  if (options.overlap) {
    const std::size_t most = *std::max_element(options.mebibytes.begin(), options.mebibytes.end());
    own.overlaps.push_back(measure_overlap(communicator, most << 20, options.rounds));
  } else {
    MeasureOptions asked{.rounds = options.rounds, .processes = processes};
    for (const std::size_t size : options.mebibytes) asked.bytes.push_back(size << 20);
    own.collectives = measure_collectives(communicator, asked);
  }
  if (communicator.rank() != 0) return;
  results.collectives.insert(results.collectives.end(), own.collectives.begin(),
                             own.collectives.end());
  results.overlaps.insert(results.overlaps.end(), own.overlaps.begin(), own.overlaps.end());
}

int run(const Options& options) {
  const bool processes = read_environment().has_value();
  if (options.overlap) {  // without a thread that reduces there is nothing to see
    setenv("RATION_PROCESSES", "streams", 0);
    setenv("RATION_THREADS", "streams", 0);
  }
  Results results;
  for (const int ranks : processes ? std::vector<int>{1} : options.ranks) {
    std::string name = "ration";
    std::string flag = fmt::format("--ranks={}", ranks);
    char* arguments[] = {name.data(), flag.data(), nullptr};
    const int exit_code =
        launch(2, arguments,
               [&](World& world) { measure(*world.communicator(), options, processes, results); },
               {.handle_signals = false});
    if (exit_code != 0) return exit_code;
  }
  if (results.collectives.empty() && results.overlaps.empty()) return 0;  // rank 0 prints
  if (options.json) {
    print_json(results);
  } else if (options.overlap) {
    print_overlaps(results.overlaps);
  } else {
    print_collectives(results.collectives);
  }
  return 0;
}

}  // namespace

void add_bench_collectives(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "collectives",
      "Collectives beside plain loops over the same bytes (the triad): among threads, or, below a "
      "process launcher, between processes, and then beside MPI's own, gloo's own and the threads "
      "backend too");
  command->add_option("--sizes", options->mebibytes, "MiB of each rank's whole buffer")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command
      ->add_option("--ranks", options->ranks,
                   "Numbers of ranks, as threads; ignored below a process launcher")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds; 0: 40, or 15 for the large ones")
      ->check(CLI::Range(0, 1000000));
  command->add_flag(
      "--overlap", options->overlap,
      "What is left of a reduce_scatter of the largest size, which takes T, after 2 T "
      "of compute. It needs a thread that reduces meanwhile: as if by "
      "RATION_PROCESSES=streams (threads: RATION_THREADS=streams), unless they are "
      "set to something else");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace ration::tools
