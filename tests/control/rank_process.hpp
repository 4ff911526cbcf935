#pragma once
// Starts a rank as a process of its own, and hears what it says.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/signal.hpp"

namespace ration {

class RankProcess {
 public:
  RankProcess(int rank, int size, std::uint16_t port, const std::string& token, double timeout,
              const std::string& deed = "") {
    std::array<int, 2> input{};
    std::array<int, 2> output{};
    if (pipe2(input.data(), O_CLOEXEC) != 0 || pipe2(output.data(), O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::vector<std::string> words{RATION_RANK_PROCESS, std::to_string(rank), std::to_string(size),
                                   std::to_string(port), token};
    if (!deed.empty()) words.push_back(deed);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::vector<std::string> settings{"RATION_TIMEOUT=" + std::to_string(timeout)};
    for (char** setting = environ; *setting; ++setting) settings.emplace_back(*setting);
    std::vector<char*> environment;
    for (std::string& setting : settings) environment.push_back(setting.data());
    environment.push_back(nullptr);
    const int error =
        posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    output_ = output[0];
    if (error) throw std::runtime_error("cannot start a rank");
  }
  RankProcess(RankProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        input_(std::exchange(other.input_, -1)),
        output_(std::exchange(other.output_, -1)),
        heard_(std::move(other.heard_)) {}
  RankProcess& operator=(RankProcess&&) = delete;
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() {
    if (pid_ > 0) {
      kill(SIGKILL);
      exit_code();
    }
    end_input();
    if (output_ >= 0) ::close(output_);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  /// Its next fold is the job's last.
  void end_input() {
    if (input_ >= 0) ::close(std::exchange(input_, -1));
  }
  /// The next line; nothing when there is none by then.
  std::string line(Deadline deadline) {
    for (;;) {
      const auto end = heard_.find('\n');
      if (end != std::string::npos) {
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd output{output_, POLLIN, 0};
      if (left <= 0 || ::poll(&output, 1, static_cast<int>(left)) <= 0) return {};
      std::array<char, 4096> bytes;
      const ssize_t size = ::read(output_, bytes.data(), bytes.size());
      if (size <= 0) return {};
      heard_.append(bytes.data(), static_cast<std::size_t>(size));
    }
  }
  /// Waits for its end; 128 + the signal that ended it.
  int exit_code() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string heard_;
};

}  // namespace ration
