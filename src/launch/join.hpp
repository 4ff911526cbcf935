#pragma once
// How a process becomes a rank among processes.

#include <memory>

#include "comm/communicator.hpp"
#include "comm/decorators/decorators.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/processes/processes.hpp"
#include "control/tcp/star.hpp"
#include "launch/environment.hpp"

namespace ration {

/// A process's place in its job, from meeting the others to leaving them.
class Joined {
 public:
  /// Collective: by what a launcher said of this process. Throws what keeps the ranks apart.
  explicit Joined(const JobEnvironment& environment);
  /// Collective over an MPI communicator.
  explicit Joined(std::shared_ptr<MpiSession> session);
  ~Joined();
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  [[nodiscard]] int rank() const { return star_->rank(); }
  [[nodiscard]] int size() const { return star_->size(); }
  [[nodiscard]] const std::shared_ptr<Alarm>& alarm() const { return alarm_; }

  /// Of all ranks: checked and recorded. What of it the caller keeps must be gone before `leave`.
  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  [[nodiscard]] const std::shared_ptr<Recording>& recording() const { return recording_; }

  /// Writes this rank's last operations, for `ration postmortem`; returns the file's path, or
  /// nothing.
  [[nodiscard]] std::string write_postmortem(std::string_view error) const;

  /// The orderly end, collective. Without it the destructor leaves as one does after a failure.
  void leave();

 private:
  void meet_by_tcp(const JobEnvironment& environment);
  void meet_by_mpi();
  void communicate(const MakeMessages& make_messages);

  std::shared_ptr<Alarm> alarm_;
  std::shared_ptr<Star> star_;
  std::shared_ptr<MpiSession> session_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Recording> recording_;
  std::string job_;  // tells its files from those of another
  bool left_ = false;
};

}  // namespace ration
