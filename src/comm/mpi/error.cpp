#include "comm/mpi/error.hpp"

#include <fmt/format.h>
#include <mpi.h>

namespace ration {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

void check_mpi(int code, std::string_view call) {
  if (code != MPI_SUCCESS)
    throw CommunicationError(fmt::format("{}: {}", call, mpi_error_text(code)));
}

}  // namespace ration
