#pragma once
// Which processes can share memory.

#include <string>

namespace ration {

/// Equal for processes that run on one kernel, see each other in /proc and may open each other's
/// descriptors.
std::string host_identity();

}  // namespace ration
