#pragma once
// Ranks as threads of one process: peers read each other's memory directly.

#include <memory>
#include <vector>

#include "comm/communicator.hpp"

namespace ration {

struct ThreadsOptions {
  /// direct: operations run on the rank's own thread when it polls or waits, and shards are
  /// one-sided: the fastest where ranks fill the cores. streams: each stream is a thread of its own
  /// and every gather is matched, as between processes; what ThreadSanitizer sees then is the
  /// ordering a GPU would need.
  enum class Mode { direct, streams };
  Mode mode = Mode::direct;
};

/// One communicator per rank, in rank order, to be handed to as many threads.
/// RATION_THREADS=streams overrides the mode.
std::vector<std::shared_ptr<Communicator>> make_threads(int ranks,
                                                        const ThreadsOptions& options = {});

}  // namespace ration
