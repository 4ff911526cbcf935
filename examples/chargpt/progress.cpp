#include "progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace chargpt {

Progress::Progress(const Options& options, int world, std::uint64_t memory, int done)
    : options_(options),
      world_(world),
      memory_(memory),
      terminal_(isatty(STDOUT_FILENO) == 1),
      last_done_(done) {}

void Progress::header(std::int64_t parameters, const Text& text,
                      std::span<const RankReport> ranks) const {
  fmt::print("{} ranks, stage {}, {} parameters, {} tokens of text, vocabulary of {}\n", world_,
             options_.config.stage, parameters, text.tokens.size(), text.vocabulary.size());
  fmt::print("memory, MB planned/allocated\n{:>5}", "rank");
  std::vector<ration::MemoryKind> kinds = {
      ration::MemoryKind::parameters, ration::MemoryKind::gradients,
      ration::MemoryKind::optimizer_state, ration::MemoryKind::buffers};
  if (options_.config.asynchronous_save) kinds.push_back(ration::MemoryKind::snapshot);
  for (const auto kind : kinds) fmt::print("{:>18}", ration::name_of(kind));
  fmt::print("{:>18}", "total");
  const bool on_disk = options_.config.offload.optimizer_state == ration::Tier::disk;
  fmt::print("{}\n", on_disk ? "           on disk" : "");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const ration::MemoryReport& memory = ranks[rank].memory;
    const auto cell = [](std::uint64_t planned, std::uint64_t allocated) {
      fmt::print("{:>18}", fmt::format("{:.2f}/{:.2f}", static_cast<double>(planned) / 1e6,
                                       static_cast<double>(allocated) / 1e6));
    };
    fmt::print("{:>5}", rank);
    std::uint64_t planned = 0, allocated = 0;
    for (const auto kind : kinds) {
      const auto k = static_cast<std::size_t>(kind);
      cell(memory.planned[k], memory.allocated[k]);
      planned += memory.planned[k];
      allocated += memory.allocated[k];
    }
    cell(planned, allocated);
    if (on_disk) fmt::print("{:>18.2f}", static_cast<double>(memory.disk) / 1e6);
    fmt::print("\n");
  }
  std::fflush(stdout);
}

void Progress::step(int done, double loss, double gradient_norm, double learning_rate) {
  using namespace std::chrono_literals;
  const auto now = Clock::now();
  const bool edge = done == 1 || done == options_.steps;
  const bool due = terminal_ ? now - last_ >= 100ms
                             : done / std::max(1, options_.steps / 10) !=
                                   last_done_ / std::max(1, options_.steps / 10);
  if (!edge && !due) return;
  const double seconds = std::chrono::duration<double>(now - last_).count();
  const double tokens =
      static_cast<double>(done - last_done_) * options_.batch * options_.shape.sequence;
  fmt::print(
      "{}step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  {:.1f} MB a "
      "rank{}",
      terminal_ ? "\r" : "", done, fmt::formatted_size("{}", options_.steps), options_.steps, loss,
      gradient_norm, learning_rate, tokens / std::max(seconds, 1e-9),
      static_cast<double>(memory_) / 1e6, terminal_ ? "\033[K" : "\n");
  std::fflush(stdout);
  last_ = now;
  last_done_ = done;
  shown_ = true;
}

void Progress::saved(const ration::SaveReport& report, double seconds) {
  end();
  if (report.folder.empty()) {
    fmt::print("step {} is being saved\n", report.step);
  } else {
    fmt::print("saved {}: {:.1f} MB in {:.2f} s\n", report.folder,
               static_cast<double>(report.bytes) / 1e6, seconds);
  }
  std::fflush(stdout);
}

void Progress::end() {
  if (terminal_ && shown_) fmt::print("\n");
  shown_ = false;
}

}  // namespace chargpt
