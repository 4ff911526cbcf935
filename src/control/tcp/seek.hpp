#pragma once
// How a rank finds rank 0: it tries every address and port in turn until its own job answers.

#include <atomic>
#include <cstdint>

#include "control/tcp/protocol.hpp"
#include "control/tcp/star.hpp"

namespace ration::tcp {

struct Found {
  int socket = -1;  // connected and welcomed; the caller's
  bool ipv6 = false;
  Process rank_zero;
};

/// Blocks. `sent` counts bytes. Throws Timeout after operation_timeout(), InvalidArgument when the
/// right job does not want us.
Found seek(const Meeting& meeting, std::atomic<std::uint64_t>& sent);

}  // namespace ration::tcp
