#pragma once
// What rank 0 shows of a run.

#include <chrono>
#include <cstdint>
#include <span>

#include <ration/ration.hpp>

#include "options.hpp"
#include "report.hpp"
#include "text.hpp"

namespace chargpt {

/// A line rewritten in place on a terminal; elsewhere a line every tenth of the run.
class Progress {
 public:
  /// `done`: steps before this run.
  Progress(const Options& options, int world, std::uint64_t memory, int done);

  /// What is trained, and the memory of every rank, planned and allocated.
  void header(std::int64_t parameters, const Text& text, std::span<const RankReport> ranks) const;
  /// `done` steps are over.
  void step(int done, double loss, double gradient_norm, double learning_rate);
  /// A checkpoint was written, or is being written beside the training.
  void saved(const ration::SaveReport& report, double seconds);
  /// Ends the line under way.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  const Options& options_;
  int world_;
  std::uint64_t memory_;  ///< of this rank, bytes
  bool terminal_;
  bool shown_ = false;
  Clock::time_point last_ = Clock::now();
  int last_done_;
};

}  // namespace chargpt
