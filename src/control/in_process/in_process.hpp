#pragma once
// Control among ranks that are threads of one process.

#include <memory>
#include <vector>

#include "control/alarm.hpp"
#include "control/control.hpp"

namespace ration {

/// What the ranks of a group share.
class InProcessHub;

/// `names` holds each rank's number in the whole job, by which messages name it.
std::shared_ptr<InProcessHub> make_in_process_hub(std::vector<int> names,
                                                  std::shared_ptr<Alarm> alarm);

/// A rank's end. A timeout, too, raises the alarm: the folds after it could never match again.
std::unique_ptr<Control> make_in_process_control(std::shared_ptr<InProcessHub> hub, int rank);

/// Ends for all ranks of a group of its own.
std::vector<std::unique_ptr<Control>> make_in_process_controls(int ranks);

}  // namespace ration
