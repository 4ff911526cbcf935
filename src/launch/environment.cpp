#include "launch/environment.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "launch/claim.hpp"
#include "launch/hostlist.hpp"

namespace ration {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

// Rank 0 is on the step's first node, which is not where srun runs; but where a node's name means
// nothing to the resolver (several slurmd on one host), that address may do.
std::vector<std::string> hosts_of_step(const Variables& variables) {
  std::vector<std::string> hosts;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (!variables.has(name)) continue;
    const std::vector<std::string> nodes = expand_hostlist(variables.text(name), name);
    if (nodes.size() == 1) hosts.emplace_back(kLoopback);
    hosts.push_back(nodes.front());
    break;
  }
  const std::string launch_node = variables.text("SLURM_LAUNCH_NODE_IPADDR");
  if (!launch_node.empty()) hosts.push_back(launch_node);
  if (hosts.empty()) {
    throw InvalidArgument(
        fmt::format("{} without SLURM_STEP_NODELIST: set MASTER_ADDR to the host of rank 0",
                    variables.quoted("SLURM_STEP_ID")));
  }
  return hosts;
}

std::vector<std::string> hosts_of(const Variables& variables, const Claim& claim) {
  if (variables.has("MASTER_ADDR")) return {variables.text("MASTER_ADDR")};
  if (claim.size == 1) return {kLoopback};
  if (claim.by == Claim::By::srun) return hosts_of_step(variables);
  if (claim.by == Claim::By::mpi) {
    if (claim.local_size == claim.size) return {kLoopback};
    return {};
  }
  throw InvalidArgument(
      fmt::format("{} without MASTER_ADDR: set it on every rank to a name or address of rank 0's "
                  "host (127.0.0.1 where all ranks are on one)",
                  variables.quoted(claim.size_name)));
}

// What tells this job from others, in words that are the same on all its ranks.
std::string identity_of(const Variables& variables, const Claim& claim) {
  std::string text = fmt::format("size={}", claim.size);
  const auto add = [&](const char* name) {
    if (variables.has(name)) text.append(" ").append(variables.quoted(name));
  };
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    add(name);
  }
  if (claim.mpi) add("PMIX_NAMESPACE");
  if (claim.by == Claim::By::srun) {  // others' ranks may be spread over several steps
    add("SLURM_JOB_ID");
    add("SLURM_STEP_ID");
  }
  return text;
}

// Below the ports that Linux gives to outgoing connections, above those of well-known services.
std::vector<std::uint16_t> ports_of(const Variables& variables, const Claim& claim,
                                    const std::string& identity) {
  constexpr std::uint64_t kFirst = 15000;
  constexpr std::uint64_t kCount = 17000;
  constexpr std::size_t kCandidates = 8;
  constexpr int kMost = std::numeric_limits<std::uint16_t>::max();
  const std::optional<int> master = variables.number("MASTER_PORT", 1, kMost);
  if (const auto port = variables.number("RATION_PORT", 1, kMost)) {
    if (port == master && claim.by == Claim::By::torchrun) {
      throw_contradiction(variables, "RATION_PORT", "MASTER_PORT",
                          "torchrun's agent listens there; choose another, or unset RATION_PORT");
    }
    return {static_cast<std::uint16_t>(*port)};
  }
  std::vector<std::uint16_t> ports;
  for (std::uint64_t seed = 0; ports.size() < kCandidates; ++seed) {
    const std::uint64_t hash = XXH3_64bits_withSeed(identity.data(), identity.size(), seed);
    const auto port = static_cast<std::uint16_t>(kFirst + hash % kCount);
    if (port != master && std::find(ports.begin(), ports.end(), port) == ports.end()) {
      ports.push_back(port);
    }
  }
  return ports;
}

}  // namespace

std::optional<JobEnvironment> read_environment(const Lookup& get) {
  const Variables variables(get);
  const std::optional<Claim> claim = read_claim(variables);
  if (!claim) return std::nullopt;
  const std::string identity = identity_of(variables, *claim);
  const std::string secret = variables.text("RATION_JOB_TOKEN");
  const char* restarts =
      claim->by == Claim::By::torchrun ? "TORCHELASTIC_RESTART_COUNT" : "SLURM_RESTART_COUNT";
  return JobEnvironment{
      .launcher = claim->launcher,
      .rank = claim->rank,
      .size = claim->size,
      .local_rank = claim->local_rank,
      .local_size = claim->local_size,
      .hosts = hosts_of(variables, *claim),
      .ports = ports_of(variables, *claim, identity),
      .token = secret.empty() ? identity : secret,
      .job = fmt::format("{:016x}", XXH3_64bits(identity.data(), identity.size())),
      .restarts = variables.number(restarts, 0, std::numeric_limits<int>::max()).value_or(0),
      .mpi = claim->mpi};
}

std::optional<JobEnvironment> read_environment() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace ration
