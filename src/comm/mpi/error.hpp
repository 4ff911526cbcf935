#pragma once
// MPI's error codes as text.

#include <string>
#include <string_view>

#include <ration/error.hpp>

namespace ration {

std::string mpi_error_text(int code);

/// Throws CommunicationError where `code`, which `call` returned, is an error.
void check_mpi(int code, std::string_view call);

}  // namespace ration
