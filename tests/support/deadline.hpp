#pragma once
// Another deadline of all waits, for one test.

#include <chrono>

#include "core/timeout.hpp"

namespace ration {

class WithTimeout {
 public:
  explicit WithTimeout(std::chrono::milliseconds timeout) : before_(operation_timeout()) {
    set_operation_timeout(timeout);
  }
  ~WithTimeout() { set_operation_timeout(before_); }
  WithTimeout(const WithTimeout&) = delete;
  WithTimeout& operator=(const WithTimeout&) = delete;

 private:
  std::chrono::milliseconds before_;
};

}  // namespace ration
