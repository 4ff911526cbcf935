// `ration bench step --overhead`: what a stage-3 step's gathers and reduces cost beside the same
// compute with no communication at all. `--diagnostics`: the same step beside itself with the
// checks and the record of operations that processes always have.
//
// A unit's forward and backward are loops of arithmetic on a register, calibrated to the asked time
// on one core; the backward also writes the unit's gradient. The bare run does just that, every
// rank for itself, into memory of its own. The sharded run gathers each unit forwards and
// backwards, hands over the gradients, and ends with the reduces done and the step header
// exchanged. The update is timed in neither. Both begin and end with all ranks together; they are
// timed in turn, because a machine's speed changes from minute to minute.

#include <algorithm>
#include <barrier>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/ration.hpp>

#include "bench/timing.hpp"
#include "comm/decorators/decorators.hpp"
#include "comm/threads/threads.hpp"
#include "commands.hpp"
#include "core/log.hpp"

namespace ration::tools {
namespace {

struct Options {
  bool overhead = false;
  bool diagnostics = false;
  std::vector<int> ranks{4, 8};
  int units = 16;
  std::int64_t elements = 16 * 1024;
  double milliseconds = 0.3;
  int rounds = 40;
  bool json = false;
};

struct Result {
  int ranks = 0;
  double beside_seconds = 0;
  double seconds = 0;
  double ratio = 0;  ///< of what was measured to what is beside it, the median of rounds
};

// A chain of dependent multiply-adds: its time depends on the core alone, not on memory.
float compute(std::int64_t iterations, float seed) {
  float x = seed;
  for (std::int64_t i = 0; i < iterations; ++i) x = x * 0.999F + 0.001F;
  return x;
}

std::int64_t calibrate(double milliseconds) {
  constexpr std::int64_t kProbe = 1'000'000;
  double best = 1e9;
  float sink = 0;
  for (int i = 0; i < 9; ++i) {
    const auto start = Clock::now();
    sink += compute(kProbe, static_cast<float>(i));
    best = std::min(best, seconds_since(start));
  }
  if (sink == 12345.0F) fmt::print(" ");  // keeps the loop
  return static_cast<std::int64_t>(milliseconds * 1e-3 / best * kProbe);
}

/// What every rank does, with and without the optimizer around it.
class Rank {
 public:
  Rank(const ProcessGroup& group, const Options& options, std::int64_t iterations)
      : options_(options),
        iterations_(iterations),
        optimizer_(group, Config{.stage = 3}),
        own_gradient_(static_cast<std::size_t>(options.elements)) {
    optimizer_.add_group(AdamW{});
    for (int u = 0; u < options.units; ++u) {
      units_.push_back(optimizer_.add_unit(
          fmt::format("unit.{}", u),
          {{.name = fmt::format("unit.{}.w", u), .shape = {options.elements}}}));
      weights_.push_back(units_.back()[fmt::format("unit.{}.w", u)]);
    }
    optimizer_.initialize(normal(0.02, 1));
  }

  void bare() {
    for (int u = 0; u < options_.units; ++u) sink_ += compute(iterations_, sink_);
    for (int u = options_.units - 1; u >= 0; --u) {
      sink_ += compute(iterations_, sink_);
      write(own_gradient_.data());
    }
  }

  /// Up to the step header; `update` ends the step.
  void sharded() {
    const MicroStep micro = optimizer_.micro_step();
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Gathered guard = units_[u].gather();
      sink_ += compute(iterations_, *guard.data<float>(weights_[u]));
    }
    micro.begin_backward();
    for (std::size_t u = units_.size(); u-- > 0;) {
      const Gathered guard = units_[u].gather();
      sink_ += compute(iterations_, *guard.data<float>(weights_[u]));
      write(units_[u].gradient<float>(weights_[u], overwrite));
      units_[u].gradients_ready();
    }
    gradients_ = optimizer_.reduce_gradients();
  }

  void update() { optimizer_.apply(gradients_); }

 private:
  void write(float* gradient) const {
    for (std::int64_t i = 0; i < options_.elements; ++i)
      gradient[i] = sink_ * static_cast<float>(i);
  }

  const Options& options_;
  std::int64_t iterations_;
  ShardedOptimizer optimizer_;
  std::vector<Unit> units_;
  std::vector<Parameter> weights_;
  std::vector<float> own_gradient_;
  Gradients gradients_;
  float sink_ = 0.5F;
};

Result summary(int ranks, const std::vector<double>& beside, const std::vector<double>& measured) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < beside.size(); ++i) ratios.push_back(measured[i] / beside[i]);
  return {.ranks = ranks,
          .beside_seconds = median(beside),
          .seconds = median(measured),
          .ratio = median(ratios)};
}

Result measure(int ranks, const Options& options) {
  const std::int64_t iterations = calibrate(options.milliseconds);
  const auto communicators = make_threads(ranks);
  const auto others = make_threads(ranks);
  std::vector<double> beside(static_cast<std::size_t>(options.rounds));
  std::vector<double> measured(beside.size());
  std::barrier meeting(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      log::set_thread_rank(rank);
      const auto at = static_cast<std::size_t>(rank);
      const ProcessGroup group(communicators[at]);
      Rank plain(group, options, iterations);
      std::optional<Rank> diagnosed;
      if (options.diagnostics) {
        const auto communicator = make_checked(make_recording(others[at]).communicator);
        diagnosed.emplace(ProcessGroup(communicator), options, iterations);
      }
      constexpr int kWarmUp = 3;
      for (int round = -kWarmUp; round < options.rounds; ++round) {
        const auto timed = [&](auto&& work, std::vector<double>& into) {
          meeting.arrive_and_wait();
          const auto start = Clock::now();
          work();
          meeting.arrive_and_wait();
          if (rank == 0 && round >= 0) into[static_cast<std::size_t>(round)] = seconds_since(start);
        };
        const auto step = [&](Rank& one, std::vector<double>& into) {
          timed([&] { one.sharded(); }, into);
          one.update();
        };
        if (options.overhead) {
          timed([&] { plain.bare(); }, beside);
          step(plain, measured);
        } else if (round % 2 == 0) {  // who comes second finds warmer caches
          step(plain, beside);
          step(*diagnosed, measured);
        } else {
          step(*diagnosed, measured);
          step(plain, beside);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return summary(ranks, beside, measured);
}

void run(const Options& options) {
  if (options.overhead == options.diagnostics)
    throw InvalidArgument("bench step: say what to measure: --overhead or --diagnostics");
  const auto [beside, measured] =
      options.overhead ? std::pair("compute", "sharded") : std::pair("plain", "diagnosed");
  nlohmann::json rows = nlohmann::json::array();
  if (!options.json) {
    fmt::print(
        "stage 3, {} units of {} f32 elements, {} ms of compute per unit and pass, {} rounds; "
        "medians\n",
        options.units, options.elements, options.milliseconds, options.rounds);
    fmt::print("{:>6}{:>14}{:>14}{:>10}\n", "ranks", fmt::format("{} ms", beside),
               fmt::format("{} ms", measured), "ratio");
  }
  for (const int ranks : options.ranks) {
    const Result r = measure(ranks, options);
    if (options.json) {
      rows.push_back({{"ranks", r.ranks},
                      {fmt::format("{}_seconds", beside), r.beside_seconds},
                      {fmt::format("{}_seconds", measured), r.seconds},
                      {"ratio", r.ratio}});
    } else {
      fmt::print("{:>6}{:>14.3f}{:>14.3f}{:>10.4f}\n", r.ranks, r.beside_seconds * 1e3,
                 r.seconds * 1e3, r.ratio);
    }
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::json({{"units", options.units},
                                       {"elements", options.elements},
                                       {"milliseconds", options.milliseconds},
                                       {"rounds", options.rounds},
                                       {"results", rows}})
                           .dump(2));
}

}  // namespace

void add_bench_step(CLI::App& bench, int& /*exit_code*/) {
  auto* command = bench.add_subcommand("step", "What a step costs beside its compute");
  auto options = std::make_shared<Options>();
  command->add_flag("--overhead", options->overhead,
                    "Stage 3's gathers and reduces beside the same compute without any");
  command->add_flag(
      "--diagnostics", options->diagnostics,
      "The step with checks and record, as processes have them, beside itself without");
  command->add_option("--ranks", options->ranks, "Thread ranks")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--units", options->units, "Units of the model")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--elements", options->elements, "f32 elements of a unit")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  command->add_option("--milliseconds", options->milliseconds, "Compute per unit and pass")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds of each")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON instead of a table");
  command->callback([options] { run(*options); });
}

}  // namespace ration::tools
