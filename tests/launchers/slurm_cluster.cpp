#include "slurm_cluster.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../job/command.hpp"

namespace ration::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Looks again and again, for what cannot tell us: another's daemon.
template <class Function>
bool becomes_true(const Function& function, std::chrono::seconds patience) {
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    if (function()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::string whole = name.data();
  return whole.substr(0, whole.find('.'));
}

std::string user_name() {
  const passwd* entry = getpwuid(getuid());
  return entry ? entry->pw_name : "root";
}

// Ports that are free now.
std::vector<int> free_ports(std::size_t count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(sockets.back(), plain, length) != 0 ||
        getsockname(sockets.back(), plain, &length) != 0) {
      throw std::runtime_error("no free port");
    }
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int fd : sockets) close(fd);
  return ports;
}

}  // namespace

bool is_installed(const std::string& program) {
  std::stringstream path(std::string(std::getenv("PATH") ? std::getenv("PATH") : "") +
                         ":/usr/sbin:/sbin");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

bool SlurmCluster::is_available() {
  for (const char* program : {"munged", "munge", "slurmctld", "slurmd", "srun", "sinfo"}) {
    if (!is_installed(program)) return false;
  }
  return true;
}

SlurmCluster::SlurmCluster() {
  std::string pattern = fs::temp_directory_path() / "ration-slurm-XXXXXX";
  if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
  try {
    write_configuration();
    setenv("SLURM_CONF", (folder_ / "slurm.conf").c_str(), 1);
    const auto in = [&](const char* name) { return (folder_ / name).string(); };
    start({"munged", "--foreground", "--force", "--key-file=" + in("munge.key"),
           "--socket=" + in("munge.socket"), "--pid-file=" + in("munged.pid"),
           "--log-file=" + in("munged.log"), "--seed-file=" + in("munge.seed")});
    await_munge();
    start({"slurmctld", "-D", "-c"});
    for (const char* node : {"rn1", "rn2"}) start({"slurmd", "-D", "-N", node});
    await_nodes();
  } catch (...) {
    stop();
    throw;
  }
}

SlurmCluster::~SlurmCluster() {
  stop();
}

void SlurmCluster::write_configuration() const {
  for (const char* name : {"state", "spool-rn1", "spool-rn2"}) fs::create_directory(folder_ / name);
  {
    std::random_device random;
    std::ofstream key(folder_ / "munge.key", std::ios::binary);
    for (int i = 0; i < 1024; ++i) key.put(static_cast<char>(random()));
  }
  fs::permissions(folder_ / "munge.key", fs::perms::owner_read | fs::perms::owner_write);
  const std::vector<int> ports = free_ports(3);
  const std::string here = folder_.string() + "/";
  std::ofstream conf(folder_ / "slurm.conf");
  conf << "ClusterName=ration\nSlurmctldHost=" << host_name()
       << "(127.0.0.1)\nSlurmctldPort=" << ports[0] << "\nSlurmUser=" << user_name()
       << "\nSlurmdUser=" << user_name() << "\nAuthType=auth/munge\nAuthInfo=socket=" << here
       << "munge.socket\nCredType=cred/munge"
       << "\nStateSaveLocation=" << here << "state\nSlurmdSpoolDir=" << here
       << "spool-%n\nSlurmctldPidFile=" << here << "slurmctld.pid\nSlurmdPidFile=" << here
       << "slurmd-%n.pid\nSlurmctldLogFile=" << here << "slurmctld.log\nSlurmdLogFile=" << here
       << "slurmd-%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none"
       << "\nSelectType=select/cons_tres\nJobAcctGatherType=jobacct_gather/none\nReturnToService=2"
       << "\nSlurmdParameters=config_overrides\n";  // more processors than there are
  for (int node = 1; node <= 2; ++node) {
    conf << "NodeName=rn" << node << " NodeHostname=" << host_name()
         << " NodeAddr=127.0.0.1 Port=" << ports[static_cast<std::size_t>(node)]
         << " CPUs=" << kTasksPerNode << " State=UNKNOWN\n";
  }
  conf << "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
}

// In the foreground, so that it is our child and ends with us, whatever ends us.
void SlurmCluster::start(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string path =
      std::string(std::getenv("PATH") ? std::getenv("PATH") : "") + ":/usr/sbin:/sbin";
  const std::string output = (folder_ / "daemons.log").string();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    const int log = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    close(STDIN_FILENO);
    open("/dev/null", O_RDONLY);
    setenv("PATH", path.c_str(), 1);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  daemons_.push_back(child);
}

void SlurmCluster::await_munge() const {
  const auto answers = [&] { return fs::exists(folder_ / "munge.socket"); };
  if (!becomes_true(answers, std::chrono::seconds(60))) {
    throw std::runtime_error("munged does not start: " + logs());
  }
}

void SlurmCluster::await_nodes() const {
  const auto both_idle = [] {
    const Outcome outcome =
        run_command({"/usr/bin/env", "timeout", "20", "sinfo", "-h", "-N", "-o", "%t"});
    return outcome.out == "idle\nidle\n";
  };
  if (!becomes_true(both_idle, std::chrono::seconds(60))) {
    throw std::runtime_error("Slurm's nodes do not come up: " + logs());
  }
}

std::string SlurmCluster::logs() const {
  std::stringstream all;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".log") continue;
    all << "\n--- " << entry.path().filename().string() << "\n"
        << std::ifstream(entry.path()).rdbuf();
  }
  return all.str();
}

// Last started, first stopped: slurmd says goodbye to slurmctld, which needs munged.
void SlurmCluster::stop() {
  for (auto daemon = daemons_.rbegin(); daemon != daemons_.rend(); ++daemon) {
    kill(*daemon, SIGTERM);
    const auto ended = [&] { return waitpid(*daemon, nullptr, WNOHANG) != 0; };
    if (!becomes_true(ended, std::chrono::seconds(10))) {
      kill(*daemon, SIGKILL);
      waitpid(*daemon, nullptr, 0);
    }
  }
  daemons_.clear();
  unsetenv("SLURM_CONF");
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace ration::test
