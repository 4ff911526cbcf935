#pragma once
// Control among ranks that are processes: a star of TCP connections to rank 0.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/alarm.hpp"
#include "control/control.hpp"

namespace ration {

namespace tcp {
class Place;
}

/// Where a job's ranks meet.
struct Meeting {
  int rank = 0;
  int size = 1;
  /// Addresses or names at which rank 0 may be reached, tried in turn: a rank 0 with several
  /// networks has several. Rank 0 itself needs none.
  std::vector<std::string> hosts;
  /// Rank 0 listens on the first that is free (0: any); the others try all in turn until the right
  /// job answers.
  std::vector<std::uint16_t> ports;
  /// Of the job: whoever says another one is a stranger. Keeps mistakes out, not attackers.
  std::string token;
};

/// Rank 0's open door, for when the others must be told the port first. Listens on all interfaces.
class Listener {
 public:
  /// On the first port that is free; 0 means any. Throws IoError when none is.
  explicit Listener(const std::vector<std::uint16_t>& ports);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] bool ipv6() const { return ipv6_; }
  /// Hands the socket over.
  [[nodiscard]] int release();

 private:
  int socket_ = -1;
  std::uint16_t port_ = 0;
  bool ipv6_ = false;
};

/// A process's place in the job's star. It has a thread of its own, which keeps watch: a rank whose
/// connection closes before it has departed has died, one that is silent for operation_timeout()
/// is stopped or cut off, and either ends the job on all ranks. What raises the alarm on one rank
/// raises it on all.
class Star : public std::enable_shared_from_this<Star> {
 public:
  /// Collective. Returns when all ranks are connected. Throws Timeout after operation_timeout(),
  /// naming who is missing, on all ranks that had come; InvalidArgument when the ranks disagree
  /// about the size. `listener` is for rank 0.
  static std::shared_ptr<Star> meet(const Meeting& meeting, std::shared_ptr<Alarm> alarm,
                                    std::unique_ptr<Listener> listener = nullptr);

  /// What has been said is sent, then the connections are closed. On rank 0 it returns when all
  /// others have departed or are gone, and at most 2 s after a failure.
  ~Star();
  Star(const Star&) = delete;
  Star& operator=(const Star&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  /// A rank's control in a group; `names[r]` is rank r's number in the job. `group` is unique in
  /// the job (0: the whole), and the same on all members. names[0] leads: its process combines.
  /// The star lives until its controls are gone.
  std::unique_ptr<Control> control(std::uint64_t group, std::vector<int> names, int rank);

  /// A group number that no other process gives out.
  std::uint64_t new_group();

  /// This rank takes part in nothing any more: whoever waits for it, or will, fails at once.
  void depart();

  /// Bytes that this process's control has sent.
  [[nodiscard]] std::uint64_t sent_bytes() const;

  /// On rank 0: how many groups it keeps records of.
  [[nodiscard]] std::size_t groups() const;

 private:
  explicit Star(std::unique_ptr<tcp::Place> place);

  const std::unique_ptr<tcp::Place> place_;
  std::atomic<std::uint64_t> next_group_{1};
};

}  // namespace ration
