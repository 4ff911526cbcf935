#pragma once
// How two checkpoints differ, whoever saved them at which world size, stage and kind of master.

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/merge.hpp"

namespace ration::checkpoint {

/// A step's folder and its manifest.
struct Side {
  std::filesystem::path folder;
  const Manifest& manifest;
};

struct Difference {
  std::string name = {};      ///< of the parameter, or "" for the optimizer's own
  std::string what = {};      ///< "weights", "exp_avg", ..., "shape", "step count"
  std::string text = {};      ///< in words, where values cannot be compared
  std::int64_t count = 0;     ///< elements whose bits differ
  std::int64_t elements = 0;  ///< of the parameter
  double largest = 0;         ///< absolute difference; NaN where only one of two is a NaN
};

struct Comparison {
  std::vector<Difference> differences = {};
  std::int64_t parameters = 0;  ///< that both have
  std::int64_t arrays = 0;      ///< that were compared
};

/// By optimizer and parameter name, element by element, widened to fp32. "weights" are masters
/// where there are any and the other side has them, too, or has fp32 weights. Verifies what it
/// reads; memory of a few blocks. Throws CorruptCheckpoint, IoError.
Comparison compare(const Side& a, const Side& b, const Progress& progress = {});

}  // namespace ration::checkpoint
