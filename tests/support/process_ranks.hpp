#pragma once
// Communicators between processes, all of whose ends are in this one: what lies between them is
// what would lie between processes.

#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/gloo.hpp"
#include "comm/processes/processes.hpp"
#include "support/ranks.hpp"

namespace ration {

/// How the ends see each other: `hosts[rank % hosts.size()]`, an empty name having nothing in
/// common with any.
struct ProcessRanks {
  std::vector<std::string> hosts{"one"};
  StreamMode stream_mode = StreamMode::direct;
};

inline std::vector<std::shared_ptr<Communicator>> make_process_ranks(int ranks,
                                                                     const ProcessRanks& options) {
  const auto token = std::to_string(std::hash<const void*>()(&options)) + std::to_string(ranks);
  auto listener = std::make_unique<Listener>(std::vector<std::uint16_t>{0});
  const std::uint16_t port = listener->port();
  // Rank 0 ends last: it waits for the others.
  struct Ends {
    std::vector<std::shared_ptr<Communicator>> by_rank;
    ~Ends() {
      while (!by_rank.empty()) by_rank.pop_back();
    }
  };
  const auto ends = std::make_shared<Ends>();
  ends->by_rank.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](int rank) {
    const auto alarm = std::make_shared<Alarm>(ranks);
    const Meeting meeting{
        .rank = rank, .size = ranks, .hosts = {"127.0.0.1"}, .ports = {port}, .token = token};
    const auto r = static_cast<std::size_t>(rank);
    ends->by_rank[r] = make_processes(
        Star::meet(meeting, alarm, rank == 0 ? std::move(listener) : nullptr), alarm,
        [](Control& control) { return make_gloo(control, "127.0.0.1"); },
        {.stream_mode = options.stream_mode, .host = options.hosts[r % options.hosts.size()]});
  });
  std::vector<std::shared_ptr<Communicator>> result;
  for (const auto& end : ends->by_rank) result.emplace_back(ends, end.get());
  return result;
}

}  // namespace ration
