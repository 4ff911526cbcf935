// `ration bench disk`: a step over state on disk beside the movement of the same bytes alone.
//
// One rank's AdamW over f32 weights: exp_avg and exp_avg_sq in tiles on disk, weights and gradients
// in memory. In each round the same store is walked in turn with the update of each element and
// with none (every tile still comes and goes), because a disk's speed changes from minute to
// minute.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "bench/timing.hpp"
#include "commands.hpp"
#include "device/memory.hpp"
#include "io/file.hpp"
#include "offload/tile_store.hpp"
#include "update/update.hpp"

namespace ration::tools {
namespace {

struct Options {
  std::vector<std::filesystem::path> folders{"."};
  int parameters = 64;  ///< Mi
  int tile = 512;       ///< Ki elements
  int slots = 4;
  int rounds = 15;
  bool json = false;
};

struct Result {
  std::string device;
  double step_seconds = 0;
  double move_seconds = 0;
  double ratio = 0;  ///< of them, the median of rounds
  double bytes = 0;  ///< moved in a walk
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : tile_(static_cast<std::size_t>(options.tile) << 10),
        elements_(static_cast<std::size_t>(options.parameters) << 20),
        sizes_((elements_ + tile_ - 1) / tile_, 2 * tile_ * sizeof(float)),
        weights_(allocate_host(elements_ * sizeof(float))),
        gradients_(allocate_host(elements_ * sizeof(float))) {
    const auto slots = static_cast<std::size_t>(options.slots);
    const std::size_t slot = offload::padded(sizes_[0]);
    memory_ = allocate_host(slots * slot);
    auto device = offload::make_device(
        {.folders = options.folders, .bytes = sizes_.size() * slot, .tickets = slots});
    device_ = device->name();
    store_.emplace(sizes_, slots, memory_->data(), std::move(device));
    auto* gradients = reinterpret_cast<float*>(gradients_->data());
    for (std::size_t i = 0; i < elements_; ++i)
      gradients[i] = static_cast<float>(i % 1000) * 1e-6F - 5e-4F;
    store_->walk(Use::fill, Order::forward, [&](std::size_t, std::byte* bytes) {
      std::fill_n(bytes, sizes_[0], std::byte{0});
    });
  }

  void step() {
    ++steps_;
    store_->walk(Use::update, Order::alternating, [&](std::size_t tile, std::byte* bytes) {
      update::Run run;
      const std::size_t first = tile * tile_;
      run.count = std::min(tile_, elements_ - first);
      run.gradient = gradients_->data() + first * sizeof(float);
      run.weight = weights_->data() + first * sizeof(float);
      run.state[0] = bytes;
      run.state[1] = bytes + tile_ * sizeof(float);
      run.first_element = first;
      run.step = steps_;
      update::apply(AdamW{}, run);
    });
  }
  void move() {
    store_->walk(Use::update, Order::alternating, [](std::size_t, std::byte*) {});
  }

  [[nodiscard]] std::uint64_t moved() const { return store_->moved_bytes(); }
  [[nodiscard]] const std::string& device() const { return device_; }

 private:
  using Use = offload::TileStore::Use;
  using Order = offload::TileStore::Order;

  const std::size_t tile_, elements_;
  const std::vector<std::size_t> sizes_;
  std::unique_ptr<Memory> weights_, gradients_, memory_;
  std::optional<offload::TileStore> store_;
  std::string device_;
  std::int64_t steps_ = 0;
};

Result measure(const Options& options) {
  Bench bench(options);
  std::vector<double> steps, moves, ratios;
  const auto timed = [](auto&& work) {
    const auto start = Clock::now();
    work();
    return seconds_since(start);
  };
  Result result{.device = bench.device()};
  for (int round = -2; round < options.rounds; ++round) {
    const std::uint64_t before = bench.moved();
    double step = 0, move = 0;
    for (int turn = 0; turn < 2; ++turn) {  // who comes first changes
      if ((turn == 0) == (round % 2 == 0)) {
        step = timed([&] { bench.step(); });
      } else {
        move = timed([&] { bench.move(); });
      }
    }
    if (round < 0) continue;
    steps.push_back(step);
    moves.push_back(move);
    ratios.push_back(step / move);
    result.bytes = static_cast<double>(bench.moved() - before) / 2;
  }
  result.step_seconds = median(steps);
  result.move_seconds = median(moves);
  result.ratio = median(ratios);
  return result;
}

void run(const Options& options) {
  const Result r = measure(options);
  if (options.json) {
    fmt::print("{}\n", nlohmann::json({{"device", r.device},
                                       {"parameters", std::int64_t{options.parameters} << 20},
                                       {"bytes_moved", r.bytes},
                                       {"step_seconds", r.step_seconds},
                                       {"move_seconds", r.move_seconds},
                                       {"ratio", r.ratio}})
                           .dump(2));
    return;
  }
  fmt::print("{} Mi parameters, tiles of {} Ki, {} in memory, {}; medians of {} rounds\n",
             options.parameters, options.tile, options.slots, r.device, options.rounds);
  fmt::print("step with state on disk  {:8.1f} ms, {:.2f} GB/s read and written\n",
             r.step_seconds * 1e3, r.bytes / r.step_seconds / 1e9);
  fmt::print("the same bytes, no update{:8.1f} ms, {:.2f} GB/s\n", r.move_seconds * 1e3,
             r.bytes / r.move_seconds / 1e9);
  fmt::print("ratio                    {:8.3f}\n", r.ratio);
}

}  // namespace

void add_bench_disk(CLI::App& bench, int& /*exit_code*/) {
  auto* command =
      bench.add_subcommand("disk", "A step with state on disk beside moving the same bytes");
  auto options = std::make_shared<Options>();
  command->add_option("--folder", options->folders, "Where the swap files are")
      ->capture_default_str();
  command->add_option("--parameters", options->parameters, "Parameters, Mi")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  command->add_option("--tile", options->tile, "Elements of a tile, Ki")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--slots", options->slots, "Tiles in memory")
      ->check(CLI::Range(3, 4096))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds of each")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON instead of a table");
  command->callback([options] { run(*options); });
}

}  // namespace ration::tools
