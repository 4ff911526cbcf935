#pragma once
// The variables of processes that launchers started, as they were found there.

#include <map>
#include <optional>
#include <string>

#include "launch/environment.hpp"

namespace ration::test {

using Set = std::map<std::string, std::string>;

inline std::optional<JobEnvironment> read(const Set& set) {
  return read_environment([&](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

inline Set operator+(Set set, const Set& more) {
  for (const auto& [name, value] : more) set[name] = value;
  return set;
}

inline Set without(Set set, const std::string& name) {
  set.erase(name);
  return set;
}

inline const Set kByHand{
    {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
inline const Set kTorchrun = kByHand + Set{{"LOCAL_RANK", "0"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"GROUP_RANK", "1"},
                                           {"TORCHELASTIC_RUN_ID", "6a44"},
                                           {"TORCHELASTIC_RESTART_COUNT", "0"},
                                           {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
inline const Set kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_RANK", "1"},
                          {"PMIX_NAMESPACE", "424542209"}};
// Slurm 22.05, `srun -N2 -n4`: three tasks on the first node.
inline const Set kSrun{{"SLURM_JOB_ID", "1"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "3"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                       {"SLURM_STEP_NODELIST", "rn[1-2]"},
                       {"SLURM_JOB_NODELIST", "rn[1-2]"},
                       {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
// The shell that runs a batch script of four tasks.
inline const Set kBatchShell{{"SLURM_JOB_ID", "2"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "0"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_TASKS_PER_NODE", "3,1"},
                             {"SLURM_JOB_NODELIST", "rn[1-2]"}};

}  // namespace ration::test
