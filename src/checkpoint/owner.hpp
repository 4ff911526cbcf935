#pragma once
// Which process made a temporary folder, so that another may know when it is dead.

#include <filesystem>
#include <string>

namespace ration::checkpoint {

/// This process: host, boot, process, and when it began, a line each.
std::string own_identity();

/// True only when the process of that identity is known to be gone: it was of this host, and of a
/// former boot or with a number that is free or another's now.
bool is_known_dead(const std::string& identity);

std::string host_name();

}  // namespace ration::checkpoint
