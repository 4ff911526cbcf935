#pragma once
// What a piece of work takes, measured in a process of its own.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ration::test {

struct Cost {
  double seconds = -1;             ///< -1: it threw
  double processor_seconds = 1e9;  ///< of user and system
  std::size_t peak = SIZE_MAX;     ///< bytes beyond what the process began with
};

inline double processor_seconds(const rusage& usage) {
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

inline Cost cost_of(const std::function<void()>& work) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  malloc_trim(0);  // else the child takes what its parent has freed
  const pid_t child = fork();
  if (child == 0) {
    rusage before = {}, after = {};
    getrusage(RUSAGE_SELF, &before);
    const auto begin = std::chrono::steady_clock::now();
    try {
      work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      _exit(1);
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    getrusage(RUSAGE_SELF, &after);
    const Cost cost{.seconds = time.count(),
                    .processor_seconds = processor_seconds(after) - processor_seconds(before),
                    .peak = static_cast<std::size_t>(after.ru_maxrss - before.ru_maxrss) * 1024};
    [[maybe_unused]] const auto written = write(pipes[1], &cost, sizeof cost);
    _exit(0);
  }
  close(pipes[1]);
  Cost cost;
  EXPECT_EQ(read(pipes[0], &cost, sizeof cost), static_cast<ssize_t>(sizeof cost));
  close(pipes[0]);
  waitpid(child, nullptr, 0);
  return cost;
}

}  // namespace ration::test
