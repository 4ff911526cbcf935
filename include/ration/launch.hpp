#pragma once
// Starting ranks: `launch` runs the same function on every rank and hands each its World.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <ration/process_group.hpp>

namespace ration {

/// The whole process group of a job, with what only the whole has: signals.
class World : public ProcessGroup {
 public:
  struct StopState;

  World() = default;
  World(ProcessGroup group, std::shared_ptr<StopState> stop)
      : ProcessGroup(std::move(group)), stop_(std::move(stop)) {}

  /// True on this rank once SIGINT, SIGTERM or SIGUSR1 arrived or `request_stop` was called here.
  /// Ranks may see it at different times: `StepReport::stop_requested` is what they agree on.
  [[nodiscard]] bool stop_requested() const;

  /// Asks all ranks to stop; they learn of it from the next step's report.
  void request_stop() const;

 private:
  std::shared_ptr<StopState> stop_;
};

struct LaunchOptions {
  /// Ranks to start as threads, 1 to 256 (default 1), unless RATION_RANKS or `--ranks N` (or
  /// `--ranks=N`) on the command line says otherwise; the command line wins. Under a process
  /// launcher all of them are ignored.
  std::optional<int> ranks = std::nullopt;
  /// Turn SIGINT, SIGTERM and SIGUSR1 into `World::stop_requested`; a second SIGINT or SIGTERM ends
  /// the process at once.
  bool handle_signals = true;
  /// How long a rank waits for another before that is an error (default 10 minutes).
  /// RATION_TIMEOUT, in seconds, wins.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// Runs `body` on every rank and returns when this process's ranks have ended: 0, or 1 when one
/// threw. Under mpirun, srun or torchrun (docs/running.md) this process is one rank, and the others
/// are processes like it; otherwise the ranks are threads of this one. An exception's text is
/// printed in one line to stderr (of threads: the first one's), and what waits for other ranks
/// throws RemoteError with it on every other rank, now or at its next such call. Throws nothing.
/// `argv` is only read. Once at a time in a process.
int launch(int argc, char** argv, const std::function<void(World&)>& body,
           const LaunchOptions& options = {});

}  // namespace ration
