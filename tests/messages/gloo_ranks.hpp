#pragma once
// Ranks as threads of this process, joined by gloo.

#include <functional>
#include <memory>
#include <vector>

#include "comm/gloo/gloo.hpp"
#include "control/in_process/in_process.hpp"
#include "support/ranks.hpp"

namespace ration::test {

inline void with_gloo(int ranks, const std::function<void(Messages&, int rank)>& body) {
  const auto controls = make_in_process_controls(ranks);
  run_ranks(ranks, [&](int rank) {
    Control& control = *controls[static_cast<std::size_t>(rank)];
    try {
      const auto messages = make_gloo(control);
      body(*messages, rank);
    } catch (const std::exception& error) {
      control.abort(error.what());
      throw;
    }
  });
}

}  // namespace ration::test
