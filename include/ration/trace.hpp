#pragma once
// A timeline of what each rank's streams did, in Chrome's trace-event format (opens in Perfetto or
// chrome://tracing).

#include <string>

namespace ration::trace {

/// Starts recording in this process (any thread, ranks may be running): gather, reduce, update,
/// wait spans per rank and stream. At most 2^20 spans are kept.
void start();

/// Writes what was recorded so far, any thread, to `path` and stops. Throws IoError naming the
/// path.
void write(const std::string& path);

}  // namespace ration::trace
