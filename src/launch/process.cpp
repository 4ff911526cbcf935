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
  std::string line = one_line(rank, failure.text);
  const std::string own = fmt::format("rank {}: ", rank);
  if (!line.starts_with(own)) line = own + line;  // heard of another
  if (!postmortem.empty()) line += fmt::format(" (last operations: {})", postmortem);
  std::fputs(fmt::format("ration: {}\n", line).c_str(), stderr);
}

}  // namespace

int run_process(const JobEnvironment& environment, const Body& body,
                const std::shared_ptr<World::StopState>& stop) {
  int rank = environment.rank;
  log::set_thread_rank(rank);
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
      const Failure failure = Failure::current();
      if (joined.communicator()) joined.communicator()->abort(one_line(rank, failure.text));
      print(rank, failure, joined.write_postmortem(failure.text));
      return 1;
    }
  } catch (...) {
    print(rank, Failure::current(), "");
    return 1;
  }
}

}  // namespace ration::launching
