#pragma once
// SIGINT, SIGTERM and SIGUSR1 as a wish to stop.

namespace ration::launch_signals {

/// A signal has arrived since handling began.
bool arrived();

/// While alive: a signal is remembered, and a second SIGINT or SIGTERM ends the process at once.
/// SIGUSR1 may come before: schedulers send it ahead of SIGTERM. The handlers found before are put
/// back.
class Handling {
 public:
  explicit Handling(bool wanted);
  ~Handling();
  Handling(const Handling&) = delete;
  Handling& operator=(const Handling&) = delete;

 private:
  bool wanted_;
};

}  // namespace ration::launch_signals
