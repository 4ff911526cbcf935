#pragma once
// The library's side of logging; the public side is ration/log.hpp.

#include <utility>

#include <fmt/format.h>

#include <ration/log.hpp>

namespace ration::log {

bool enabled(LogLevel level);
void write(LogLevel level, std::string_view line);

/// Which rank this thread works for, in log lines and traces; -1: none.
int thread_rank();
void set_thread_rank(int rank);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::debug))
    write(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::info))
    write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::warning))
    write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ration::log
