#pragma once
// Ranks as processes: those of one host read each other's memory, the others exchange messages.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/collectives/rank_group.hpp"
#include "comm/communicator.hpp"
#include "control/tcp/star.hpp"

namespace ration {

/// Collective, by a control of the whole job.
using MakeMessages = std::function<std::shared_ptr<Messages>(Control& control)>;

struct ProcessesOptions {
  /// Without a value: RATION_PROCESSES=direct|streams, otherwise direct where all ranks are on one
  /// host and there are no more cores than ranks, else streams.
  std::optional<StreamMode> stream_mode = std::nullopt;
  /// What processes with shared memory have in common, empty: this host, or nothing with
  /// RATION_SHARED_MEMORY=off.
  std::optional<std::string> host = std::nullopt;
};

/// Collective over the job: the communicator of all its ranks.
std::shared_ptr<Communicator> make_processes(std::shared_ptr<Star> star,
                                             std::shared_ptr<Alarm> alarm,
                                             const MakeMessages& make_messages,
                                             const ProcessesOptions& options = {});

}  // namespace ration
