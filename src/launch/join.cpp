#include "launch/join.hpp"

#include <random>
#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/gloo/gloo.hpp"
#include "comm/local_address.hpp"
#include "comm/postmortem.hpp"
#include "core/log.hpp"
#include "core/record.hpp"

namespace ration {
namespace {

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", random());
  return token;
}

// The MPI that the library was built with may not be the one of the launcher: then it finds nobody.
std::shared_ptr<MpiSession> session_of(const JobEnvironment& environment) {
  if (!environment.mpi || !has_mpi()) return nullptr;
  auto session = open_mpi_session();
  if (session->size() == environment.size) return session;
  const std::string what = fmt::format(
      "{} started {} ranks, but MPI in this program sees {}: it was built for another "
      "launcher{}",
      environment.launcher, environment.size, session->size(),
      environment.launcher == "srun" ? " (try srun --mpi=pmix)" : "");
  if (environment.hosts.empty()) {
    throw CommunicationError(fmt::format("rank {}: {}", environment.rank, what));
  }
  if (environment.rank == 0) log::warning("{}; ranks meet over TCP and use gloo", what);
  session->finish();
  return nullptr;
}

}  // namespace

Joined::Joined(const JobEnvironment& environment) : session_(session_of(environment)) {
  if (session_) {
    meet_by_mpi();
  } else {
    meet_by_tcp(environment);
  }
}

Joined::Joined(std::shared_ptr<MpiSession> session) : session_(std::move(session)) {
  meet_by_mpi();
}

void Joined::meet_by_tcp(const JobEnvironment& environment) {
  alarm_ = std::make_shared<Alarm>(environment.size);
  job_ = environment.job;
  star_ = Star::meet({.rank = environment.rank,
                      .size = environment.size,
                      .hosts = environment.hosts,
                      .ports = environment.ports,
                      .token = environment.token},
                     alarm_);
  communicate([&](Control& control) {
    return make_gloo(control, environment.hosts.empty() ? "" : environment.hosts[0]);
  });
}

// Rank 0 opens a door anywhere, and MPI tells the others where.
void Joined::meet_by_mpi() {
  alarm_ = std::make_shared<Alarm>(session_->size());
  Meeting meeting{.rank = session_->rank(), .size = session_->size()};
  std::unique_ptr<Listener> listener;
  Bytes told;
  if (meeting.rank == 0) {
    listener = std::make_unique<Listener>(std::vector<std::uint16_t>{0});
    meeting.token = random_token();
    RecordWriter writer(told);
    writer.put(listener->port());
    writer.put_text(meeting.token);
    writer.put_text(random_token().substr(0, 16));
    for (const std::string& address : reachable_addresses()) writer.put_text(address);
  }
  session_->broadcast(told, 0);
  RecordReader reader(told);
  meeting.ports = {reader.get<std::uint16_t>()};
  meeting.token = reader.get_text();
  job_ = reader.get_text();
  while (!reader.at_end()) meeting.hosts.push_back(reader.get_text());
  star_ = Star::meet(meeting, alarm_, std::move(listener));
  communicate([&](Control&) { return make_mpi(session_); });
}

void Joined::communicate(const MakeMessages& make_messages) {
  auto recorded = make_recording(make_processes(star_, alarm_, make_messages));
  recording_ = std::move(recorded.recording);
  communicator_ = make_checked(std::move(recorded.communicator));
}

std::string Joined::write_postmortem(std::string_view error) const {
  return recording_ ? ration::write_postmortem(*recording_, rank(), size(), error, job_) : "";
}

void Joined::leave() {
  communicator_->depart();
  communicator_.reset();
  if (session_) session_->finish();
  left_ = true;
}

Joined::~Joined() {
  if (!left_ && session_) session_->give_up();
  communicator_.reset();
}

}  // namespace ration
