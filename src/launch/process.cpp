// This process as one rank of a job whose others are processes too.

#include <cstdio>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/log.hpp"
#include "launch/join.hpp"
#include "launch/run.hpp"

namespace ration::launching {
namespace {

void print(int rank, const Failure& failure, const std::string& postmortem) {
  std::string line = fmt::format("ration: {}", one_line(rank, failure.text));
  if (!line.starts_with(fmt::format("ration: rank {}:", rank))) {
    line = fmt::format("ration: rank {}: {}", rank, line.substr(8));
  }
  if (!postmortem.empty()) line += fmt::format(" (last operations: {})", postmortem);
  std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace

int run_process(const JobEnvironment& environment, const Body& body,
                const std::shared_ptr<World::StopState>& stop) {
  int rank = environment.rank;
  log::set_thread_rank(rank);
  Failure failure;
  try {
    Joined joined(environment);
    rank = joined.rank();
    log::set_thread_rank(rank);
    log::info("rank {} of {}, started by {}", rank, joined.size(), environment.launcher);
    stop->alarm = joined.alarm();
    try {
      {
        World world(ProcessGroup(joined.communicator()), stop);
        body(world);
      }
      joined.leave();
      return 0;
    } catch (...) {
      // Said before anything else: the launcher may end this process in a moment.
      failure = Failure::current();
      joined.communicator() ? joined.communicator()->abort(one_line(rank, failure.text)) : void();
      print(rank, failure, joined.write_postmortem(failure.text));
      return 1;
    }
  } catch (...) {
    failure = Failure::current();
  }
  print(rank, failure, "");
  return 1;
}

}  // namespace ration::launching
