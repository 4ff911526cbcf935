#pragma once
// Logging: quiet by default. RATION_LOG=debug|info|warning|off chooses the level (default:
// warning), and a callback takes the lines to the trainer's own logger.

#include <functional>
#include <string_view>

namespace ration {

enum class LogLevel { debug, info, warning, off };

/// Takes every line at or above the level. Called from any thread, never from two at once. `rank`
/// is -1 outside a rank.
using LogSink = std::function<void(LogLevel level, int rank, std::string_view line)>;

/// Replaces the sink; an empty one restores the default (stderr, one line a message).
void set_log_sink(LogSink sink);

/// Replaces the level taken from RATION_LOG.
void set_log_level(LogLevel level);

}  // namespace ration
