#pragma once
// The step header: the one record all ranks exchange before an update, and what they agree on by
// it.

#include <cstdint>
#include <string>
#include <vector>

#include "control/control.hpp"

namespace ration {

enum class Call : std::uint8_t { step, reduce_gradients, apply, joint_step, save, load };
std::string_view name_of(Call call);

/// What a rank says.
struct HeaderRecord {
  Call call = Call::step;
  std::int64_t step = 0;
  std::int64_t micro_steps = 0;
  std::uint64_t options = 0;  ///< hash of rules, masks, clip, loss scale
  std::vector<double>
      learning_rates;     ///< per group: in the clear, so that a difference can be named
  double clip_norm = -1;  ///< < 0: none
  double weight = 0;
  std::int64_t batches = 0;
  double squared_norm = 0;
  bool stop = false;
  bool skip = false;
  bool changed = false;             ///< reduced gradients were changed by hand
  bool save_failed = false;         ///< a save beside the training has ended badly
  std::vector<std::uint64_t> used;  ///< a bit per parameter
  std::vector<double> metrics;
  std::string refused = {};  ///< why this rank cannot go on, though it can talk: all throw it
  // Rank 0's proposals for the canonical orders; empty: as they are.
  std::vector<int> forward_order;
  std::vector<int> backward_order;
  std::vector<int> reduce_order;
};

/// What they agree on: sums over ranks of weight, batches, squared norm (in rank order) and
/// metrics; the union of the flags and used parameters; rank 0's orders.
struct HeaderResult {
  double weight = 0;
  std::int64_t batches = 0;
  double squared_norm = 0;
  bool stop = false;
  bool skip = false;
  bool changed = false;
  bool save_failed = false;
  std::vector<std::uint64_t> used;
  std::vector<double> metrics;
  std::vector<int> forward_order;
  std::vector<int> backward_order;
  std::vector<int> reduce_order;
};

/// Reused between steps, so that a step allocates nothing once it has run.
struct HeaderBuffers {
  HeaderRecord mine;
  Bytes record;
  Bytes result;
};

/// Collective. Throws, on all ranks alike, CommunicationError when ranks are in different calls or
/// steps, and InvalidArgument when their options differ, naming the rank and both values. `bytes`
/// grows by what this rank sent and received.
HeaderResult exchange(Control& control, const HeaderRecord& record, HeaderBuffers& buffers,
                      std::uint64_t& bytes);

}  // namespace ration
