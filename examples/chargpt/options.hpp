#pragma once
// What the command line says.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ration/config.hpp>
#include <ration/rules.hpp>

#include "shape.hpp"

namespace chargpt {

struct Options {
  std::vector<std::string> text;  ///< files; the licence texts of the system by default
  std::optional<int> ranks;       ///< ration::launch reads the flag for itself
  Shape shape;                    ///< but for the vocabulary
  int steps = 400;
  int batch = 16;  ///< sequences a step, over all ranks and micro-steps
  int micro_steps = 1;
  std::string optimizer = "adamw";
  double learning_rate = 0;  ///< that of the optimizer where not given
  bool cosine = true;
  int warmup = 20;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< 0: no clipping
  std::uint64_t seed = 1;
  ration::Config config;       ///< stage, precision, micro-steps, accumulation
  std::string save;            ///< folder of checkpoints; empty: none
  int save_every = 0;          ///< steps; 0: at the end and when stopped
  int keep = 2;                ///< checkpoints
  std::string resume;          ///< folder; empty: start fresh
  bool resume_if_any = false;  ///< from `save`, where there is a checkpoint
  std::string report;          ///< file; empty: none
  std::string trace;
  bool quiet = false;
};

/// The command line is wrong (`code` 2, one line), or asks for help (`code` 0, the text of it).
struct UsageError : std::runtime_error {
  UsageError(int code, const std::string& text) : std::runtime_error(text), code(code) {}
  int code;
};

/// Throws UsageError.
Options parse_options(int argc, const char* const* argv);

/// Sequences a rank computes at once. Throws UsageError where the batch does not divide.
int sequences_per_rank(const Options& options, int world);

/// The rule of --optimizer with the given weight decay.
ration::Rule rule_of(const Options& options, double weight_decay);

/// Linear warm-up, then constant or a half cosine down to a tenth.
double learning_rate_at(const Options& options, int step);

}  // namespace chargpt
