#pragma once
// SIGINT and SIGTERM as a wish to stop.

namespace ration::launch_signals {

/// A signal has arrived since handling began.
bool arrived();

/// While alive: the first SIGINT or SIGTERM is remembered, a second ends the process at once. The
/// handlers found before are put back.
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
