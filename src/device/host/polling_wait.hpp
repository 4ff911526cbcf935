#pragma once
// How a rank waits for others: asleep, but for a look at its own deferred streams now and then.

#include <algorithm>
#include <chrono>

#include <ration/error.hpp>

#include "core/signal.hpp"
#include "device/host/host_stream.hpp"

namespace ration {

/// What a rank does while it waits: its deferred streams. Throws when it is to give up.
inline void look_around() {
  HostStream::poll_thread();
  if (HostStream::abandoned()) throw CommunicationError("given up: its rank has ended");
}

/// How long it looks away.
inline constexpr std::chrono::milliseconds kWaitSlice{2};

/// As Signal::wait, and meanwhile polls the deferred streams of this thread: two ranks may each
/// wait for what the other has put into a stream but not yet done.
template <class Condition>
bool wait_polling(Signal& signal, const Condition& condition, Deadline deadline) {
  if (condition()) return true;
  for (;;) {
    look_around();
    const Deadline slice = std::min(deadline, Clock::now() + kWaitSlice);
    if (signal.wait(condition, slice)) return true;
    if (slice == deadline) return false;
  }
}

}  // namespace ration
