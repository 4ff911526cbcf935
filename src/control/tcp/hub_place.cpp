#include "control/tcp/hub_place.hpp"

#include <chrono>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <asio/post.hpp>

#include <ration/error.hpp>

#include "control/tcp/loss.hpp"
#include "core/timeout.hpp"

namespace ration::tcp {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

HubPlace::HubPlace(const Meeting& meeting, std::shared_ptr<Alarm> alarm,
                   std::unique_ptr<Listener> listener)
    : Place(0, meeting.size, std::move(alarm)),
      tick_(io_.context()),
      announcement_(io_.context()),
      hub_(meeting.size, *this),
      seats_(static_cast<std::size_t>(meeting.size)) {
  if (size() == 1) return;
  if (!listener) listener = std::make_unique<Listener>(meeting.ports);
  Door::Host& host = *this;
  door_ = std::make_unique<Door>(*listener, io_, size(), meeting.token, host, sent_, changed_);
}

void HubPlace::meet() {
  const auto timeout = operation_timeout();
  if (door_) door_->open();
  ticked_ = Clock::now();
  wait_to_tick();
  io_.start(rank(), [this](const Failure& failure) { alarm().raise(failure); });
  alarm().on_raise([this](const Failure& failure) { tell(failure); });
  const auto met = [&] { return seated_.load() == size(); };
  if (!changed_.wait([&] { return met() || alarm().raised(); }, Clock::now() + timeout)) {
    const std::vector<int> names = missing();
    alarm().raise({Failure::Kind::timeout,
                   fmt::format("rank 0: the meeting of the job's {} ranks: timed out after {:.1f} "
                               "s waiting for rank{} {}",
                               size(), Seconds(timeout).count(), names.size() == 1 ? "" : "s",
                               fmt::join(names, ", "))});
  }
  alarm().check_waiting();
}

// The others' records and last words pass through here, so they go first.
void HubPlace::close() {
  depart(0);
  const auto over = [&] { return all_gone() || told_at_.load() != 0; };
  while (!changed_.wait(over, Clock::now() + 1s)) {
  }
  constexpr auto kTimeToHear = 2s;  // for the others to hear of a failure
  const Deadline told_at{Clock::duration(told_at_.load())};
  changed_.wait([&] { return all_gone(); }, told_at + kTimeToHear);
  alarm().on_raise(nullptr);
  io_.stop();
  if (door_) door_->close();
  for (const Seat& seat : seats_) {
    if (seat.connection) seat.connection->close();
  }
}

bool HubPlace::all_gone() {
  if (door_ && door_->coming() > 0) return false;
  const std::lock_guard lock(mutex_);
  for (const Seat& seat : seats_) {
    if (seat.connection && !seat.departed && !seat.connection->ended()) return false;
  }
  return true;
}

std::vector<int> HubPlace::missing() {
  std::vector<int> names;
  const std::lock_guard lock(mutex_);
  for (int rank = 1; rank < size(); ++rank) {
    if (!seat_of(rank).connection) names.push_back(rank);
  }
  return names;
}

void HubPlace::rule(const Hub::Verdict& verdict) {
  if (verdict) alarm().raise(*verdict);
}

void HubPlace::judge_late(int from, Late& late) {
  if (late.key.group == 0) {
    late.names.resize(static_cast<std::size_t>(size()));
    std::iota(late.names.begin(), late.names.end(), 0);
  }
  const auto verdict = hub_.late(from, late, [this](int name) { return remark(name); });
  if (verdict) return alarm().raise(*verdict);
  if (from == 0) {
    deliver(Patience{late.key});
  } else {
    send(from, encode(Patience{late.key}));
  }
}

std::string HubPlace::remark(int rank) {
  if (rank <= 0 || rank >= size()) return {};
  const std::lock_guard lock(mutex_);
  const Seat& seat = seat_of(rank);
  if (!seat.connection) return {};
  const Seconds silence = Clock::now() - seat.connection->heard();
  constexpr Seconds kRemarkable = 2s;
  if (silence < std::max<Seconds>(kRemarkable, 2 * heartbeat_interval())) return {};
  return fmt::format(" (rank {} has not been heard of for {:.1f} s)", rank, silence.count());
}

void HubPlace::depart(int rank) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(seat_of(rank).departed, true)) return;
    leavers_.push_back(rank);
    // At the end of a job all depart at once: a few messages tell of them all.
    if (leavers_.size() == 1)
      asio::post(io_.context(), [this] {
        announcement_.expires_after(2ms);
        announcement_.async_wait([this](const asio::error_code& error) {
          if (!error) announce_departures();
        });
      });
  }
  alarm().depart(rank);
  rule(hub_.depart(rank));
  changed_.notify();
}

void HubPlace::announce_departures() {
  Departed departed;
  std::vector<std::shared_ptr<Connection>> listeners;
  {
    const std::lock_guard lock(mutex_);
    departed.names.swap(leavers_);
    for (const Seat& seat : seats_) {
      if (seat.connection && !seat.departed) listeners.push_back(seat.connection);
    }
  }
  const SharedFrame frame = encode(std::move(departed));
  for (const auto& connection : listeners) connection->send(frame);
}

void HubPlace::send(int rank, const SharedFrame& frame) {
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    connection = seat_of(rank).connection;
  }
  if (connection) connection->send(frame);
}

void HubPlace::send_all(const SharedFrame& frame) {
  for (int rank = 1; rank < size(); ++rank) send(rank, frame);
}

void HubPlace::tell(const Failure& failure) {
  told_at_.store(Clock::now().time_since_epoch().count());
  {
    const std::lock_guard lock(mutex_);
    told_ = failure;
  }
  send_all(encode(JobFailure{failure}));
  changed_.notify();
}

void HubPlace::combine(int leader, Combine&& combine) {
  if (leader == 0) {
    deliver(std::move(combine));
  } else {
    send(leader, encode(std::move(combine)));
  }
}

void HubPlace::result(std::span<const int> members, Result&& result) {
  const SharedFrame frame = encode(result);
  bool here = false;
  for (const int member : members) {
    if (member == 0) {
      here = true;
    } else {
      send(member, frame);
    }
  }
  if (here) deliver(std::move(result));
}

std::optional<std::string> HubPlace::occupied(int rank) {
  const std::lock_guard lock(mutex_);
  const Seat& seat = seat_of(rank);
  if (!seat.connection) return std::nullopt;
  return fmt::format("rank {} is there already {}; two processes were given the same rank", rank,
                     seat.process.text());
}

void HubPlace::seat(const Hello& hello, std::shared_ptr<Connection> connection) {
  connection->own(*this, hello.rank);
  std::optional<Failure> told;
  {
    const std::lock_guard lock(mutex_);
    Seat& seat = seat_of(hello.rank);
    seat.connection = connection;
    seat.process = hello.process;
    told = told_;
  }
  if (told) connection->send(encode(JobFailure{*told}));
  if (seated_.fetch_add(1) + 1 < size()) return;
  door_->close();
  send_all(encode(Met{}));
  changed_.notify();
}

void HubPlace::wrong_size(const std::string& text) {
  alarm().raise({Failure::Kind::invalid_argument, text});
}

void HubPlace::frame(Connection& connection, Frame&& frame) {
  const int from = connection.rank();
  switch (frame.kind) {
    case FrameKind::heartbeat:
      return;
    case FrameKind::opening:
      return rule(hub_.open(from, decode<Opening>(frame)));
    case FrameKind::record:
      return rule(hub_.record(from, decode<Record>(frame)));
    case FrameKind::result:
      return rule(hub_.result(from, decode<Result>(frame)));
    case FrameKind::late: {
      auto late = decode<Late>(frame);
      return judge_late(from, late);
    }
    case FrameKind::leaving:
      return rule(hub_.leave(from, decode<Leaving>(frame)));
    case FrameKind::failure:
      return alarm().raise(decode<JobFailure>(frame).failure);
    case FrameKind::departing:
      return depart(from);
    default:
      throw CommunicationError(
          fmt::format("a rank says what only rank 0 says ({})", static_cast<int>(frame.kind)));
  }
}

void HubPlace::ended(Connection& connection, const Connection::End& end) {
  const int rank = connection.rank();
  Process process;
  bool departed = false;
  {
    const std::lock_guard lock(mutex_);
    process = seat_of(rank).process;
    departed = seat_of(rank).departed;
  }
  connection.close();
  changed_.notify();
  if (departed) return;
  alarm().raise(lost(rank, process, connection, end));
}

void HubPlace::wait_to_tick() {
  tick_.expires_after(heartbeat_interval());
  tick_.async_wait([this](const asio::error_code& error) {
    if (!error) tick();
  });
}

void HubPlace::tick() {
  const auto now = Clock::now();
  // After a sleep of our own others have had no chance to be heard.
  const bool slept = now - ticked_ > 2 * heartbeat_interval();
  ticked_ = now;
  const SharedFrame heartbeat = encode(Heartbeat{});
  std::optional<Failure> failure;
  for (int rank = 1; rank < size(); ++rank) {
    std::shared_ptr<Connection> connection;
    {
      const std::lock_guard lock(mutex_);
      const Seat& seat = seat_of(rank);
      if (seat.connection && !seat.connection->ended()) connection = seat.connection;
      if (connection && !slept && !seat.departed && !failure &&
          now - connection->heard() > most_silence())
        failure = silent(rank, seat.process, *connection);
    }
    if (!connection) continue;
    if (slept) connection->pardon();
    connection->send(heartbeat);
  }
  if (failure) alarm().raise(*failure);
  if (door_) door_->sweep();
  wait_to_tick();
}

std::unique_ptr<Place> make_hub_place(const Meeting& meeting, std::shared_ptr<Alarm> alarm,
                                      std::unique_ptr<Listener> listener) {
  if (meeting.size > 1) allow_connections(meeting.size);
  return std::make_unique<HubPlace>(meeting, std::move(alarm), std::move(listener));
}

}  // namespace ration::tcp
