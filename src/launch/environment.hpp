#pragma once
// What a process launcher says of this process by environment variables.
//
// Who is asked, in this order; the first that speaks decides alone:
//  1. RATION_RANK and RATION_WORLD_SIZE: said to override the rest.
//  2. RANK and WORLD_SIZE: torchrun's (then TORCHELASTIC_RUN_ID is there too), or set by hand.
//     torchrun below mpirun or srun is ordinary. By hand they must agree with an MPI launcher's.
//  3. An MPI launcher: Open MPI (OMPI_COMM_WORLD_*), MVAPICH (MV2_COMM_WORLD_*), MPICH and Intel
//  MPI
//     (PMI_*), PMIx below srun (PMIX_RANK).
//  4. Slurm, inside a step that srun started (SLURM_STEP_ID). A batch script's own shell and
//     salloc's have SLURM_NTASKS too, but are no step: what they start are no ranks.
// A variable that is empty counts as not set.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/variables.hpp"

namespace ration {

struct JobEnvironment {
  std::string launcher;  ///< "torchrun", "mpirun (Open MPI)", "srun", "by hand", ...
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< among the ranks of this host; absent: not said
  std::optional<int> local_size;
  /// Where rank 0 listens: names and addresses to try in turn, the same on all ranks. Empty where
  /// only MPI knows.
  std::vector<std::string> hosts;
  /// Ports that rank 0 may take, to try in turn, the same on all ranks. Never torchrun's
  /// MASTER_PORT, which belongs to its agent.
  std::vector<std::uint16_t> ports;
  /// The same on the ranks of one job and another one in the next: keeps out accidents.
  std::string token;
  std::string job;   ///< a number for the job, of 16 hex digits, made of no secret: names its files
  int restarts = 0;  ///< how often the launcher has started this job again
  /// An MPI launcher numbered the ranks, and so will MPI_Init; unless the MPI was built for another
  /// launcher: then it finds rank 0 of 1, which is worth a look.
  bool mpi = false;
};

/// What the launcher said; nothing where there was none, and ranks are threads. A pure function of
/// the variables. Throws InvalidArgument that names the variables and their values, when they
/// contradict each other or are not what they should be.
std::optional<JobEnvironment> read_environment(const Lookup& get);
/// Of this process.
std::optional<JobEnvironment> read_environment();

}  // namespace ration
