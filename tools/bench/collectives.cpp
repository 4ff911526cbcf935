// `ration bench collectives`: the threads backend beside a triad.
//
// The triad is what the same threads could do at best: each reads as many streams of as many bytes,
// and writes as many, as the collective makes a rank read and write, with plain loops, in memory of
// its own, and waits for nobody. For N ranks and a whole buffer of B bytes a rank
//  - reduce_scatter reads N streams of B/N and writes one: to[i] = a[i] + b[i] + ...
//  - all_gather copies N - 1 streams of B/N (the own shard is in place)
//  - all_reduce does the one, then the other.
// The two are timed in turn in one run, because a machine's bandwidth changes from minute to
// minute.

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "comm/threads/threads.hpp"
#include "commands.hpp"
#include "core/log.hpp"

namespace ration::tools {
namespace {

struct Options {
  std::vector<std::size_t> mebibytes{1, 16, 256};
  std::vector<int> ranks{2, 4};
  int rounds = 0;
  bool json = false;
};

struct Result {
  OperationKind kind{};
  std::size_t bytes = 0;
  int ranks = 0;
  int rounds = 0;
  double seconds = 0;
  double triad_seconds = 0;
};

constexpr OperationKind kKinds[] = {OperationKind::reduce_scatter, OperationKind::all_gather,
                                    OperationKind::all_reduce};

/// Memory and work of one rank, for both.
class Rank {
 public:
  Rank(Communicator& communicator, std::size_t bytes)
      : communicator_(communicator),
        stream_(communicator.make_stream("bench")),
        ranks_(static_cast<std::size_t>(communicator.size())),
        count_(bytes / sizeof(float) / ranks_),
        send_(communicator.allocate(bytes)),
        recv_(communicator.allocate(bytes)) {
    std::fill_n(floats(*send_), count_ * ranks_, 1.0F);
    std::fill_n(floats(*recv_), count_ * ranks_, 1.0F);
  }

  void collective(OperationKind kind) {
    const bool gathers = kind == OperationKind::all_gather;
    const auto self = static_cast<std::size_t>(communicator_.rank());
    communicator_.submit(*stream_,
                         {.kind = kind,
                          .count = kind == OperationKind::all_reduce ? count_ * ranks_ : count_,
                          .send = gathers ? floats(*recv_) + self * count_ : floats(*send_),
                          .recv = floats(*recv_),
                          .tag = "bench"});
    stream_->synchronize();
  }

  void triad(OperationKind kind) {
    if (kind != OperationKind::all_gather) sum(floats(*send_), floats(*recv_));
    if (kind != OperationKind::reduce_scatter) {
      for (std::size_t i = 1; i < ranks_; ++i) {
        std::memcpy(floats(*recv_) + i * count_, floats(*send_) + i * count_,
                    count_ * sizeof(float));
      }
    }
  }

  void barrier() {
    communicator_.submit(*stream_, {.kind = OperationKind::barrier, .tag = "bench"});
    stream_->synchronize();
  }

 private:
  static float* floats(Memory& memory) { return reinterpret_cast<float*>(memory.data()); }

  void sum(const float* from, float* __restrict to) const {
    const std::size_t n = count_;
    if (ranks_ == 2) {
      for (std::size_t i = 0; i < n; ++i) to[i] = from[i] + from[n + i];
    } else if (ranks_ == 4) {
      for (std::size_t i = 0; i < n; ++i) {
        to[i] = from[i] + from[n + i] + from[2 * n + i] + from[3 * n + i];
      }
    } else {  // in pieces that stay in the first cache, so that memory is still passed once
      constexpr std::size_t kPiece = 1024;
      for (std::size_t begin = 0; begin < n; begin += kPiece) {
        const std::size_t end = std::min(n, begin + kPiece);
        for (std::size_t i = begin; i < end; ++i) to[i] = from[i];
        for (std::size_t r = 1; r < ranks_; ++r) {
          for (std::size_t i = begin; i < end; ++i) to[i] += from[r * n + i];
        }
      }
    }
  }

  Communicator& communicator_;
  std::unique_ptr<Stream> stream_;
  std::size_t ranks_;
  std::size_t count_;  // of a shard
  std::unique_ptr<Memory> send_;
  std::unique_ptr<Memory> recv_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// From the first rank's start to the last one's end.
class Round {
 public:
  explicit Round(int ranks)
      : starts_(static_cast<std::size_t>(ranks)), ends_(static_cast<std::size_t>(ranks)) {}
  template <class Work>
  void time(int rank, const Work& work) {
    starts_[static_cast<std::size_t>(rank)] = Clock::now();
    work();
    ends_[static_cast<std::size_t>(rank)] = Clock::now();
  }
  [[nodiscard]] double seconds() const {
    const auto length = *std::max_element(ends_.begin(), ends_.end()) -
                        *std::min_element(starts_.begin(), starts_.end());
    return std::chrono::duration<double>(length).count();
  }

 private:
  std::vector<Clock::time_point> starts_;
  std::vector<Clock::time_point> ends_;
};

void measure(int ranks, std::size_t bytes, const Options& options, std::vector<Result>& results) {
  // Small ones many times between two looks at the clock.
  constexpr std::size_t kBytesPerRound = std::size_t{64} << 20;
  const std::size_t repeats = std::max<std::size_t>(1, kBytesPerRound / bytes);
  const int rounds = options.rounds > 0 ? options.rounds : (bytes >= kBytesPerRound ? 15 : 40);
  const auto communicators = make_threads(ranks);
  Round collective(ranks);
  Round triad(ranks);
  std::vector<std::vector<double>> times(std::size(kKinds) * 2);
  const auto run = [&](int rank) {
    log::set_thread_rank(rank);
    Rank self(*communicators[static_cast<std::size_t>(rank)], bytes);
    for (int round = -1; round < rounds; ++round) {  // the first warms up
      for (std::size_t k = 0; k < std::size(kKinds); ++k) {
        self.barrier();
        collective.time(rank, [&] {
          for (std::size_t i = 0; i < repeats; ++i) self.collective(kKinds[k]);
        });
        self.barrier();
        triad.time(rank, [&] {
          for (std::size_t i = 0; i < repeats; ++i) self.triad(kKinds[k]);
        });
        self.barrier();
        if (rank == 0 && round >= 0) {
          times[2 * k].push_back(collective.seconds() / static_cast<double>(repeats));
          times[2 * k + 1].push_back(triad.seconds() / static_cast<double>(repeats));
        }
      }
    }
    self.barrier();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t k = 0; k < std::size(kKinds); ++k) {
    results.push_back(
        {kKinds[k], bytes, ranks, rounds, median(times[2 * k]), median(times[2 * k + 1])});
  }
}

void print_json(const std::vector<Result>& results) {
  auto list = nlohmann::json::array();
  for (const Result& r : results) {
    list.push_back({{"operation", name_of(r.kind)},
                    {"bytes", r.bytes},
                    {"ranks", r.ranks},
                    {"rounds", r.rounds},
                    {"seconds", r.seconds},
                    {"triad_seconds", r.triad_seconds},
                    {"ratio", r.seconds / r.triad_seconds}});
  }
  fmt::print("{}\n", nlohmann::json{{"backend", "threads"}, {"collectives", list}}.dump(2));
}

void print_table(const std::vector<Result>& results) {
  fmt::print("{:<15} {:>5} {:>9} {:>12} {:>12} {:>7}\n", "operation", "ranks", "MiB", "median ms",
             "triad ms", "ratio");
  for (const Result& r : results) {
    fmt::print("{:<15} {:>5} {:>9} {:>12.3f} {:>12.3f} {:>7.2f}\n", name_of(r.kind), r.ranks,
               r.bytes >> 20, r.seconds * 1e3, r.triad_seconds * 1e3, r.seconds / r.triad_seconds);
  }
}

void run(const Options& options) {
  std::vector<Result> results;
  for (const int ranks : options.ranks) {
    for (const std::size_t size : options.mebibytes) {
      measure(ranks, size << 20, options, results);
    }
  }
  options.json ? print_json(results) : print_table(results);
}

}  // namespace

void add_bench_collectives(CLI::App& bench, int&) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "collectives",
      "Collectives among threads, beside plain loops over the same bytes (the triad)");
  command->add_option("--sizes", options->mebibytes, "MiB of each rank's whole buffer")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "Numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds; 0: 40, or 15 for the large ones")
      ->check(CLI::Range(0, 1000000));
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { run(*options); });
}

}  // namespace ration::tools
