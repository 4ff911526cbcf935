#pragma once
// Collectives measured by all ranks of a job: ours, whoever else has them, and the triad, in turn.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace ration::tools {

struct Timing {
  std::string name;
  std::optional<double> seconds;  ///< nothing where it has no such collective
};

/// One collective of one size.
struct Measured {
  OperationKind kind{};
  std::size_t bytes = 0;
  int ranks = 0;
  int rounds = 0;
  std::string backend;
  std::vector<Timing> timings;  ///< ours first, the triad last
};

struct MeasureOptions {
  std::vector<std::size_t> bytes;  ///< of each rank's whole buffer
  int rounds = 0;                  ///< 0: as many as a size needs
  bool processes = false;          ///< beside other libraries between processes
};

/// Collective. A round's time is that of the slowest rank, the result the median over rounds; all
/// are timed in turn within a round, because a machine's speed changes from minute to minute. A
/// first round warms up and compares results with what they should be: throws CommunicationError
/// where one is wrong. The same on all ranks.
std::vector<Measured> measure_collectives(Communicator& communicator,
                                          const MeasureOptions& options);

/// How much of a reduce_scatter is left after a rank has computed for twice as long as it takes, as
/// seconds in `synchronize`. Where the thread that reduces shares a core with the compute, the same
/// arithmetic takes longer than it does alone: so both are told.
struct Overlap {
  std::size_t bytes = 0;
  int ranks = 0;
  int rounds = 0;
  double seconds = 0;        ///< of the reduce alone
  double left_by_work = 0;   ///< after what takes twice as long where nothing is reduced meanwhile
  double left_by_clock = 0;  ///< after computing until twice as long has passed
  double slowdown = 0;       ///< of the compute, by the reduce
};
Overlap measure_overlap(Communicator& communicator, std::size_t bytes, int rounds);

}  // namespace ration::tools
