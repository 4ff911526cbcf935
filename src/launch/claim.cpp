#include "launch/claim.hpp"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "launch/hostlist.hpp"

namespace ration {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();
constexpr const char* kOverrideAdvice = "set RATION_RANK and RATION_WORLD_SIZE to say which holds";

/// The variables in which one launcher says who a process is.
struct Names {
  Claim::By by;
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Names kOverride{Claim::By::hand,     "by hand",    "RATION_RANK",
                          "RATION_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kTorchrun{Claim::By::torchrun, "torchrun",   "RANK",
                          "WORLD_SIZE",        "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kByHand{Claim::By::hand, "by hand",    "RANK",
                        "WORLD_SIZE",    "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kMpi[] = {
    {Claim::By::mpi, "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Claim::By::mpi, "mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {Claim::By::mpi, "mpiexec (MPICH, Intel MPI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS"}};
constexpr const char* kStepTasks = "SLURM_STEP_TASKS_PER_NODE";

void check_below(const Variables& variables, const Names& names, const Claim& claim) {
  if (claim.rank >= claim.size) {
    throw_contradiction(variables, names.rank, names.size,
                        fmt::format("ranks go from 0 to {}; start as many processes as the size "
                                    "says, and number them from 0",
                                    claim.size - 1));
  }
  if (!claim.local_size) return;
  if (claim.local_rank && *claim.local_rank >= *claim.local_size) {
    throw_contradiction(variables, names.local_rank, names.local_size,
                        fmt::format("the ranks of a host go from 0 to {}", *claim.local_size - 1));
  }
  if (*claim.local_size > claim.size) {
    throw_contradiction(variables, names.local_size, names.size,
                        "one host cannot have more ranks than all hosts together");
  }
}

// Nothing where neither rank nor size is said; half of it is a mistake.
std::optional<Claim> read_named(const Variables& variables, const Names& names) {
  const std::optional<int> rank = variables.number(names.rank, 0, kAnyNumber);
  const std::optional<int> size = variables.number(names.size, 1, kAnyNumber);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    throw InvalidArgument(fmt::format("{} without {}: set both, or neither",
                                      variables.quoted(rank ? names.rank : names.size),
                                      rank ? names.size : names.rank));
  }
  Claim claim{.by = names.by,
              .launcher = names.launcher,
              .rank_name = names.rank,
              .size_name = names.size,
              .rank = *rank,
              .size = *size,
              .local_rank = variables.number(names.local_rank, 0, kAnyNumber),
              .mpi = names.by == Claim::By::mpi};
  // Slurm says it for all nodes at once, in a notation of its own.
  if (names.by != Claim::By::srun) {
    claim.local_size = variables.number(names.local_size, 1, kAnyNumber);
  }
  check_below(variables, names, claim);
  return claim;
}

// Slurm numbers the shells that are no steps of tasks (a batch script, salloc's own) from here.
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;

bool in_step(const Variables& variables) {
  const std::string step = variables.text("SLURM_STEP_ID");
  return !step.empty() && variables.has("SLURM_PROCID") &&
         std::strtoll(step.c_str(), nullptr, 10) < kFirstSpecialStep;
}

std::optional<int> tasks_on_this_node(const Variables& variables) {
  const std::optional<int> node = variables.number("SLURM_NODEID", 0, kAnyNumber);
  if (!node || !variables.has(kStepTasks)) return std::nullopt;
  const std::vector<int> tasks = expand_tasks_per_node(variables.text(kStepTasks), kStepTasks);
  if (static_cast<std::size_t>(*node) >= tasks.size()) {
    throw_contradiction(variables, "SLURM_NODEID", kStepTasks,
                        fmt::format("the step has {} nodes", tasks.size()));
  }
  return tasks[static_cast<std::size_t>(*node)];
}

std::optional<Claim> read_slurm(const Variables& variables) {
  if (!in_step(variables)) return std::nullopt;
  constexpr const char* kSize = "SLURM_STEP_NUM_TASKS";
  const Names names{Claim::By::srun, "srun",
                    "SLURM_PROCID",  variables.has(kSize) ? kSize : "SLURM_NTASKS",
                    "SLURM_LOCALID", kStepTasks};
  std::optional<Claim> claim = read_named(variables, names);
  if (!claim) return std::nullopt;
  claim->local_size = tasks_on_this_node(variables);
  check_below(variables, names, *claim);
  return claim;
}

// srun --mpi=pmix. PMIx says no size; the step does.
std::optional<Claim> read_pmix(const Variables& variables) {
  const std::optional<int> rank = variables.number("PMIX_RANK", 0, kAnyNumber);
  if (!rank) return std::nullopt;
  std::optional<Claim> claim = read_slurm(variables);
  if (!claim) {
    throw InvalidArgument(
        fmt::format("{} without a number of ranks: start the program by mpirun, "
                    "srun or torchrun, or set RATION_RANK and RATION_WORLD_SIZE",
                    variables.quoted("PMIX_RANK")));
  }
  if (*rank != claim->rank) {
    throw_contradiction(variables, "PMIX_RANK", claim->rank_name, kOverrideAdvice);
  }
  claim->launcher = "srun (PMIx)";
  claim->mpi = true;
  return claim;
}

std::optional<Claim> read_mpi(const Variables& variables) {
  for (const Names& names : kMpi) {
    const std::optional<Claim> mpi = read_named(variables, names);
    if (!mpi) continue;
    if (std::string_view(names.rank) != "PMI_RANK") return mpi;
    // srun --mpi=pmi2 sets these too; mpiexec's own below srun number other processes.
    std::optional<Claim> srun = read_slurm(variables);
    if (!srun || srun->rank != mpi->rank || srun->size != mpi->size) return mpi;
    srun->launcher = "srun (PMI-2)";
    srun->mpi = true;
    return srun;
  }
  return read_pmix(variables);
}

// By hand below an MPI launcher: MPI numbers the same processes, so both must say the same.
Claim agreed(const Variables& variables, const Claim& by_hand, const Claim& mpi) {
  const std::string advice = fmt::format("these differ; unset the first, or {}", kOverrideAdvice);
  if (by_hand.rank != mpi.rank) {
    throw_contradiction(variables, by_hand.rank_name, mpi.rank_name, advice);
  }
  if (by_hand.size != mpi.size) {
    throw_contradiction(variables, by_hand.size_name, mpi.size_name, advice);
  }
  return mpi;
}

// A batch script may export WORLD_SIZE and leave the rank to srun or mpirun.
void check_lone_world_size(const Variables& variables, const std::optional<Claim>& claim) {
  const std::optional<int> size = variables.number("WORLD_SIZE", 1, kAnyNumber);
  if (!size) return;
  if (!claim) {
    throw InvalidArgument(
        fmt::format("{} without RANK: set both, or neither", variables.quoted("WORLD_SIZE")));
  }
  if (*size != claim->size) {
    throw_contradiction(
        variables, "WORLD_SIZE", claim->size_name,
        fmt::format("{} started another number of ranks; unset WORLD_SIZE", claim->launcher));
  }
}

bool below_torchrun(const Variables& variables) {
  return variables.has("TORCHELASTIC_RUN_ID") || variables.has("TORCHELASTIC_RESTART_COUNT");
}

}  // namespace

std::optional<Claim> read_claim(const Variables& variables) {
  if (std::optional<Claim> claim = read_named(variables, kOverride)) return claim;
  if (variables.has("RANK")) {
    if (below_torchrun(variables)) return read_named(variables, kTorchrun);
    const std::optional<Claim> by_hand = read_named(variables, kByHand);
    const std::optional<Claim> mpi = read_mpi(variables);
    return mpi ? agreed(variables, *by_hand, *mpi) : by_hand;
  }
  std::optional<Claim> claim = read_mpi(variables);
  if (!claim) claim = read_slurm(variables);
  check_lone_world_size(variables, claim);
  return claim;
}

void throw_contradiction(const Variables& variables, const char* one, const char* other,
                         const std::string& advice) {
  throw InvalidArgument(
      fmt::format("{} and {}: {}", variables.quoted(one), variables.quoted(other), advice));
}

}  // namespace ration
