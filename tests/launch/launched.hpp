#pragma once
// `launch` with a command line and an environment, and what it prints.

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/ration.hpp>

namespace ration::test {

struct Launched {
  int status = 0;
  std::string printed = {};  ///< on stderr
};

inline Launched launched(std::vector<std::string> arguments,
                         const std::function<void(World&)>& body,
                         const LaunchOptions& options = {}) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStderr();
  Launched result;
  result.status = launch(static_cast<int>(arguments.size()), argv.data(), body, options);
  result.printed = testing::internal::GetCapturedStderr();
  return result;
}

/// One variable of the environment, put back at the end.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* former = std::getenv(name)) former_ = former, was_set_ = true;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Environment() { was_set_ ? setenv(name_, former_.c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::string former_;
  bool was_set_ = false;
};

}  // namespace ration::test
