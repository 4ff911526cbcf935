// `ration bench checkpoint`: saves and loads beside the disk's own speed and plain HDF5, and what a
// save beside the training costs its steps.
//
// Ranks are threads. In each round all write, then read, the same number of bytes in turn, each way
// with fsync, because a disk's speed changes from minute to minute; a way's time is that of the
// slowest rank, a ratio the median over rounds of ratios within a round.

#include <barrier>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <ration/ration.hpp>

#include "bench/disk_peers.hpp"
#include "bench/timing.hpp"
#include "comm/threads/threads.hpp"
#include "commands.hpp"
#include "core/log.hpp"
#include "device/memory.hpp"

namespace ration::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  fs::path folder = "";
  int mib = 1024;
  std::vector<int> ranks{1, 4};
  int rounds = 7;
  bool beside = false;
  bool json = false;
};

constexpr int kUnits = 8;
constexpr int kArrays = 3;  ///< of AdamW over f32 weights

/// Of the bench's own, gone at its end.
class Place {
 public:
  explicit Place(const fs::path& parent)
      : path_(parent / fmt::format("ration-bench-{}", getpid())) {
    fs::create_directories(path_);
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::int64_t parameters_of(const Options& options) {
  return (std::int64_t{options.mib} << 20) / (kArrays * 4);
}

/// One rank's model: its whole state is the bytes that were asked for.
class Model {
 public:
  Model(const ProcessGroup& group, const Options& options)
      : optimizer_(group, {.stage = 2, .asynchronous_save = options.beside}) {
    optimizer_.add_group(AdamW{});
    for (int u = 0; u < kUnits; ++u) {
      units_.push_back(optimizer_.add_unit(
          fmt::format("unit.{}", u),
          {{.name = fmt::format("w.{}", u), .shape = {parameters_of(options) / kUnits}}}));
    }
    optimizer_.initialize(normal(0.02, 1));
  }
  void step() {
    optimizer_.micro_step().begin_backward();
    for (std::size_t u = units_.size(); u-- > 0;) units_[u].gradients_ready();
    optimizer_.step();
  }
  ShardedOptimizer& optimizer() { return optimizer_; }

 private:
  ShardedOptimizer optimizer_;
  std::vector<Unit> units_;
};

/// Runs `body(rank, group)` on threads.
void on_ranks(int ranks, const std::function<void(int, const ProcessGroup&)>& body) {
  const auto communicators = make_threads(ranks);
  std::vector<std::thread> threads;
  std::exception_ptr failure;
  std::mutex mutex;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      log::set_thread_rank(rank);
      const ProcessGroup group(communicators[static_cast<std::size_t>(rank)]);
      try {
        body(rank, group);
      } catch (const std::exception& error) {
        group.abort(error.what());
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

const char* const kWays[] = {"raw write", "HDF5 write", "save", "raw read", "load"};
using Times = std::map<std::string, std::vector<double>>;

Times measure(int ranks, const Options& options, const fs::path& folder) {
  Times times;
  on_ranks(ranks, [&](int rank, const ProcessGroup& group) {
    Model model(group, options);
    const std::size_t own = (static_cast<std::size_t>(options.mib) << 20) /
                            static_cast<std::size_t>(ranks) / 4096 * 4096;
    const auto bytes = allocate_host(own);
    const fs::path raw = folder / fmt::format("raw-{}", rank);
    const fs::path plain = folder / fmt::format("plain-{}.h5", rank);
    const fs::path root = folder / "checkpoints";
    const auto timed = [&](const char* way, int round, const std::function<void()>& work) {
      group.barrier();
      const auto start = Clock::now();
      work();
      group.barrier();
      if (rank == 0 && round > 0) times[way].push_back(seconds_since(start));  // the first warms up
    };
    for (int round = 0; round <= options.rounds; ++round) {
      timed(kWays[0], round, [&] { raw_write(raw, {bytes->data(), own}); });
      timed(kWays[1], round, [&] {
        plain_hdf5_write(plain, {reinterpret_cast<const float*>(bytes->data()), own / 4},
                         kArrays * kUnits);
      });
      timed(kWays[2], round, [&] { model.optimizer().save(root, {.step = round, .keep = 0}); });
      timed(kWays[3], round, [&] { raw_read(raw, own, bytes->data()); });
      timed(kWays[4], round, [&] { model.optimizer().load(root); });
      fs::remove(raw);
      fs::remove(plain);
      group.barrier();
      if (rank == 0) fs::remove_all(root);
      group.barrier();
    }
  });
  return times;
}

double ratio(const Times& times, const char* way, const char* to) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < times.at(way).size(); ++i)
    ratios.push_back(times.at(to)[i] / times.at(way)[i]);
  return median(ratios);
}

void report(int ranks, const Options& options, const Times& times, nlohmann::json& rows) {
  for (const char* way : kWays) {
    const bool writes = way != kWays[3] && way != kWays[4];
    const char* disk = writes ? kWays[0] : kWays[3];
    const double rate = options.mib / median(times.at(way));
    const double to_disk = ratio(times, way, disk);
    if (options.json) {
      rows.push_back(
          {{"ranks", ranks}, {"way", way}, {"mib_per_second", rate}, {"to_raw", to_disk}});
    } else {
      fmt::print("{:>6}  {:<12}{:>10.0f}{:>10.2f}\n", ranks, way, rate, to_disk);
    }
  }
}

/// Steps alone and steps while a save is under way, in turn.
struct Beside {
  double copy_seconds = 0;
  double save_seconds = 0;
  double longer = 0;  ///< the steps beside a save, as a part of those alone
};

Beside measure_beside(int ranks, const Options& options, const fs::path& folder) {
  std::vector<double> copies, saves, ratios;
  on_ranks(ranks, [&](int rank, const ProcessGroup& group) {
    Model model(group, options);
    for (int round = 0; round <= options.rounds; ++round) {
      group.barrier();
      auto start = Clock::now();
      model.optimizer().save(folder / "beside", {.step = round, .asynchronous = true});
      group.barrier();
      const double copy = seconds_since(start);
      // As many steps as fit into a save, counted by rank 0 for all.
      const auto save_start = Clock::now();
      double steps = 0;
      std::vector<double> going{1};
      while (going[0] > 0) {
        model.step();
        ++steps;
        going = {rank == 0 && !fs::exists(folder / "beside" / fmt::format("step-{:08}", round))
                     ? 1.0
                     : 0.0};
        group.all_reduce(going);
      }
      const double beside = seconds_since(save_start);
      model.optimizer().wait_saved();
      group.barrier();
      start = Clock::now();
      for (int i = 0; i < static_cast<int>(steps); ++i) {
        model.step();
        (void)fs::exists(folder / "beside" / "nothing");
        group.all_reduce(going);
      }
      const double alone = seconds_since(start);
      if (rank != 0 || round == 0) continue;
      copies.push_back(copy);
      saves.push_back(beside);
      ratios.push_back(beside / alone);
    }
  });
  return {median(copies), median(saves), median(ratios)};
}

void run(const Options& options) {
  const Place place(options.folder.empty() ? fs::current_path() : options.folder);
  nlohmann::json rows = nlohmann::json::array();
  if (options.beside) {
    if (!options.json)
      fmt::print("{:>6}{:>10}{:>10}{:>18}\n", "ranks", "copy s", "save s", "steps beside it");
  } else if (!options.json) {
    fmt::print("{} MiB over all ranks, {} rounds; ratios are speeds to that of the raw disk\n",
               options.mib, options.rounds);
    fmt::print("{:>6}  {:<12}{:>10}{:>10}\n", "ranks", "", "MiB/s", "to raw");
  }
  for (const int ranks : options.ranks) {
    if (!options.beside) {
      report(ranks, options, measure(ranks, options, place.path()), rows);
      continue;
    }
    const Beside b = measure_beside(ranks, options, place.path());
    if (options.json) {
      rows.push_back({{"ranks", ranks},
                      {"copy_seconds", b.copy_seconds},
                      {"save_seconds", b.save_seconds},
                      {"steps_beside", b.longer}});
    } else {
      fmt::print("{:>6}{:>10.3f}{:>10.3f}{:>17.2f}x\n", ranks, b.copy_seconds, b.save_seconds,
                 b.longer);
    }
  }
  if (options.json) {
    fmt::print("{}\n",
               nlohmann::json({{"mib", options.mib}, {"rounds", options.rounds}, {"results", rows}})
                   .dump(2));
  }
}

}  // namespace

void add_bench_checkpoint(CLI::App& bench, int& /*exit_code*/) {
  auto* command = bench.add_subcommand(
      "checkpoint", "Saves and loads beside the disk's own speed and plain HDF5");
  auto options = std::make_shared<Options>();
  command->add_option("--dir", options->folder,
                      "Where to write, on the disk in question (default: here)");
  command->add_option("--mib", options->mib, "State over all ranks, MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "Thread ranks")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds, after one that warms up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--beside", options->beside,
                    "What a save beside the training costs the steps that go on meanwhile");
  command->add_flag("--json", options->json, "JSON instead of a table");
  command->callback([options] { run(*options); });
}

}  // namespace ration::tools
