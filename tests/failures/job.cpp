#include "job.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ration::test {
namespace {

using Clock = std::chrono::steady_clock;

class Process {
 public:
  Process(const JobOptions& options, const std::map<std::string, std::string>& more) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    std::vector<char*> argv;
    for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
      setpgid(0, 0);  // what it starts can be ended with it
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
      for (const auto& [name, value] : more) setenv(name.c_str(), value.c_str(), 1);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  ~Process() {
    if (pipe_ >= 0) close(pipe_);
  }
  Process(Process&& other) noexcept
      : pid_(other.pid_), pipe_(std::exchange(other.pipe_, -1)), ended_(std::move(other.ended_)) {}
  Process& operator=(Process&&) = delete;

  [[nodiscard]] int pipe() const { return pipe_; }
  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] Clock::time_point gone_at() const { return gone_at_; }
  Ended& ended() { return ended_; }

  void read_some() {
    std::array<char, 4096> buffer;
    const ssize_t n = read(pipe_, buffer.data(), buffer.size());
    if (n > 0) {
      ended_.printed.append(buffer.data(), static_cast<std::size_t>(n));
    } else {
      close(pipe_);
      pipe_ = -1;
    }
  }

  void look() {
    if (gone_) return;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return;
    gone_ = true;
    gone_at_ = Clock::now();
    ended_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void kill_all() const { ::kill(-pid_, SIGKILL); }
  void reap() {
    int status = 0;
    if (!gone_) waitpid(pid_, &status, 0);
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  bool gone_ = false;
  Clock::time_point gone_at_{};
  Ended ended_;
};

// Until all are gone, or patience is.
void watch(std::vector<Process>& processes, const JobOptions& options) {
  Clock::time_point fault{};
  const Clock::time_point begin = Clock::now();
  for (;;) {
    std::vector<pollfd> fds;
    std::vector<Process*> of;
    int gone = 0;
    std::string printed;
    for (Process& process : processes) {
      process.look();
      gone += process.gone() ? 1 : 0;
      printed += process.ended().printed;
      if (process.pipe() < 0) continue;
      fds.push_back({process.pipe(), POLLIN, 0});
      of.push_back(&process);
    }
    if (gone == static_cast<int>(processes.size()) && fds.empty()) break;
    if (options.enough && options.enough(gone, printed)) break;
    poll(fds.data(), fds.size(), 5);
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      of[i]->read_some();
      if (fault == Clock::time_point{} &&
          of[i]->ended().printed.find(options.sign) != std::string::npos) {
        fault = Clock::now();
      }
    }
    const Clock::time_point since = fault == Clock::time_point{} ? begin : fault;
    if (Clock::now() - since > options.patience) break;
  }
  for (Process& process : processes) {
    process.kill_all();
    process.reap();
    const Clock::time_point end = process.gone() ? process.gone_at() : Clock::now();
    process.ended().at = end - (fault == Clock::time_point{} ? begin : fault);
  }
}

}  // namespace

std::vector<Ended> run_job(int ranks, const JobOptions& options) {
  static int jobs = 0;
  const int port = 20000 + (getpid() * 37 + jobs++ * 101) % 10000;
  std::vector<Process> processes;
  processes.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back(
        options, std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                    {"WORLD_SIZE", std::to_string(ranks)},
                                                    {"LOCAL_RANK", std::to_string(rank)},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", std::to_string(port)}});
  }
  watch(processes, options);
  std::vector<Ended> result;
  for (Process& process : processes) result.push_back(process.ended());
  return result;
}

Ended run_launcher(const JobOptions& options) {
  std::vector<Process> processes;
  processes.emplace_back(options, std::map<std::string, std::string>{});
  watch(processes, options);
  return processes[0].ended();
}

}  // namespace ration::test
