// This process as one rank of a job whose others are processes too.

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/decorators/decorators.hpp"
#include "comm/gloo/gloo.hpp"
#include "comm/processes/processes.hpp"
#include "core/log.hpp"
#include "launch/run.hpp"

namespace ration::launching {
namespace {

std::shared_ptr<Communicator> join(const JobEnvironment& environment,
                                   const std::shared_ptr<Alarm>& alarm) {
  auto star = Star::meet({.rank = environment.rank,
                          .size = environment.size,
                          .hosts = environment.hosts,
                          .ports = environment.ports,
                          .token = environment.token},
                         alarm);
  return make_processes(std::move(star), alarm, [&](Control& control) {
    return make_gloo(control, environment.hosts.empty() ? "" : environment.hosts[0]);
  });
}

}  // namespace

int run_process(const JobEnvironment& environment, const Body& body,
                const std::shared_ptr<World::StopState>& stop) {
  const int rank = environment.rank;
  log::set_thread_rank(rank);
  log::info("rank {} of {}, started by {}", rank, environment.size, environment.launcher);
  const auto alarm = std::make_shared<Alarm>(environment.size);
  stop->alarm = alarm;
  std::shared_ptr<Recording> recording;
  Failure failure;
  bool failed = false;
  try {
    auto recorded = make_recording(join(environment, alarm));
    recording = recorded.recording;
    World world(ProcessGroup(make_checked(std::move(recorded.communicator))), stop);
    try {
      body(world);
      world.communicator()->depart();
    } catch (...) {
      failure = Failure::current();
      failed = true;
      world.abort(one_line(rank, failure.text));
    }
  } catch (...) {
    failure = Failure::current();
    failed = true;
  }
  if (!failed) return 0;
  std::string line = one_line(rank, failure.text);
  std::fputs(fmt::format("ration: {}\n", line).c_str(), stderr);
  return 1;
}

}  // namespace ration::launching
