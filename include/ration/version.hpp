#pragma once
// The library's version and what it was built with.

#include <string>

#define RATION_VERSION_MAJOR 0
#define RATION_VERSION_MINOR 1
#define RATION_VERSION_PATCH 0

namespace ration {

/// "0.1.0".
std::string version();

/// One line a backend: its name and "yes" or why not. What `ration --version` prints.
std::string build_summary();

}  // namespace ration
