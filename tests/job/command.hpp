#pragma once
// Runs a program as a user's shell does.

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace ration::test {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal where one ended it
  std::string out;
  std::string err;
  std::size_t peak_memory = 0;  ///< resident bytes; at least those of the test itself at the start

  /// The last line of `out`.
  [[nodiscard]] std::string last_line() const;
};

/// `while_running` is called once the first byte of output has come.
Outcome run_command(const std::vector<std::string>& arguments,
                    const std::function<void(pid_t)>& while_running = {});

/// Cut at spaces.
std::vector<std::string> words(const std::string& text);

}  // namespace ration::test
