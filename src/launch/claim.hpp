#pragma once
// Who a process is: rank and size, from whichever launcher is to be believed.

#include <optional>

#include "launch/variables.hpp"

namespace ration {

/// What one launcher says, with the names of the variables it said it by, for messages.
struct Claim {
  enum class By {
    hand,
    torchrun,
    mpi,  ///< mpirun, mpiexec
    srun
  };
  By by = By::hand;
  const char* launcher = "";
  const char* rank_name = "";
  const char* size_name = "";
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank = std::nullopt;
  std::optional<int> local_size = std::nullopt;
  bool mpi = false;  ///< MPI_Init learns the same
};

/// Nothing where no launcher speaks. Throws InvalidArgument as read_environment does.
std::optional<Claim> read_claim(const Variables& variables);

/// The variables contradict each other: names both with their values.
[[noreturn]] void throw_contradiction(const Variables& variables, const char* one,
                                      const char* other, const std::string& advice);

}  // namespace ration
