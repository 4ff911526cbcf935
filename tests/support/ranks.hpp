#pragma once
// Runs a function once per rank, each in a thread of its own.

#include <exception>
#include <thread>
#include <vector>

#include "core/log.hpp"

namespace ration {

/// Where each rank is a process that runs the same test: which one this is. -1: all are here.
inline int only_rank = -1;

/// A rank as an index.
inline std::size_t z(int i) {
  return static_cast<std::size_t>(i);
}

/// Returns when all have returned; then throws the first rank's exception, if any threw.
template <class Function>
void run_ranks(int ranks, const Function& function) {
  if (only_rank >= 0) {
    if (only_rank < ranks) function(only_rank);
    return;
  }
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      log::set_thread_rank(rank);
      try {
        function(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace ration
