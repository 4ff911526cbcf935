#pragma once
// A job of several processes, started as a launcher would, and how each of them ended.

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace ration::test {

struct Ended {
  int exit_code = -1;   ///< 128 + signal where one ended it; -1: still there at the end
  std::string printed;  ///< on stdout and stderr
  std::chrono::duration<double> at;  ///< since the fault
};

struct JobOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment = {};
  /// What every process that is left then is killed after, counted from the fault.
  std::chrono::seconds patience{30};
  /// Waits for this text in a process's output: that is when the fault happens.
  std::string sign = "ready";
  /// Nothing more is to be waited for, though a process is still there.
  std::function<bool(int gone, const std::string& printed)> enough = {};
};

/// `ranks` processes with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun or a shell
/// script starts them.
std::vector<Ended> run_job(int ranks, const JobOptions& options);

/// One process, such as mpirun, that starts the others.
Ended run_launcher(const JobOptions& options);

}  // namespace ration::test
