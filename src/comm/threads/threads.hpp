#pragma once
// Ranks as threads of one process: peers read each other's memory directly.

#include <memory>
#include <vector>

#include "comm/collectives/rank_group.hpp"
#include "comm/communicator.hpp"

namespace ration {

struct ThreadsOptions {
  using Mode = StreamMode;
  /// direct is the fastest where ranks fill the cores; what ThreadSanitizer sees of streams is the
  /// ordering that a GPU would need.
  StreamMode mode = StreamMode::direct;
};

/// One communicator per rank, in rank order, to be handed to as many threads.
/// RATION_THREADS=streams overrides the mode.
std::vector<std::shared_ptr<Communicator>> make_threads(int ranks,
                                                        const ThreadsOptions& options = {});

}  // namespace ration
