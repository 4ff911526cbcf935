#pragma once
// A Slurm of one's own: two nodes, rn1 and rn2, on this host's loopback.

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace ration::test {

/// The program is on PATH (Debian keeps daemons in /usr/sbin).
bool is_installed(const std::string& program);

/// Runs until destroyed, then is gone without a trace. SLURM_CONF names it meanwhile.
class SlurmCluster {
 public:
  static constexpr int kTasksPerNode = 8;

  [[nodiscard]] static bool is_available();

  /// Returns when both nodes take work. Throws std::runtime_error, with the logs, when they do not
  /// within a minute.
  SlurmCluster();
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  void write_configuration() const;
  void start(const std::vector<std::string>& arguments);
  void await_munge() const;
  void await_nodes() const;
  [[nodiscard]] std::string logs() const;
  void stop();

  std::filesystem::path folder_;
  std::vector<pid_t> daemons_;
};

}  // namespace ration::test
