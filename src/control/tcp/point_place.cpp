// A point of the star: a rank other than 0, which speaks to rank 0 only.

#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include <ration/error.hpp>

#include "control/tcp/connection.hpp"
#include "control/tcp/io_thread.hpp"
#include "control/tcp/loss.hpp"
#include "control/tcp/place.hpp"
#include "control/tcp/seek.hpp"
#include "core/timeout.hpp"

namespace ration::tcp {
namespace {

using namespace std::chrono_literals;

class PointPlace final : public Place, private Connection::Owner {
 public:
  PointPlace(const Meeting& meeting, std::shared_ptr<Alarm> alarm)
      : Place(meeting.rank, meeting.size, std::move(alarm)),
        meeting_(meeting),
        tick_(io_.context()) {}
  ~PointPlace() override { io_.stop(); }
  PointPlace(const PointPlace&) = delete;
  PointPlace& operator=(const PointPlace&) = delete;

  void meet() override;
  void close() override;

  void open(Opening&& opening) override { say(encode(std::move(opening))); }
  void record(Record&& record) override { say(encode(std::move(record))); }
  void result(Result&& result) override { say(encode(std::move(result))); }
  void late(Late&& late) override {
    if (late.key.group == 0) late.names.clear();  // the whole job
    say(encode(std::move(late)));
  }
  void leave(const Leaving& leaving) override { say(encode(leaving)); }
  void depart() override;

 private:
  void say(const SharedFrame& frame) { connection_->send(frame); }
  void tell(const Failure& failure);
  void hear(const Failure& failure);
  void frame(Connection& connection, Frame&& frame) override;
  void ended(Connection& connection, const Connection::End& end) override;
  void wait_to_tick();
  void tick();

  const Meeting meeting_;
  IoThread io_;
  asio::steady_timer tick_;
  Deadline ticked_;
  std::shared_ptr<Connection> connection_;
  Process rank_zero_;
  std::atomic<bool> met_{false};
  std::atomic<bool> departed_{false};
  std::atomic<bool> told_{false};  // rank 0 knows of the failure, or told us
};

void PointPlace::meet() {
  Found found = seek(meeting_, sent_);
  rank_zero_ = std::move(found.rank_zero);
  asio::ip::tcp::socket socket(
      io_.context(), found.ipv6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), found.socket);
  connection_ = std::make_shared<Connection>(std::move(socket), FrameDecoder(kMostOfRank),
                                             io_.scratch(), sent_, changed_);
  connection_->own(*this, 0);
  say(encode(Seated{}));
  connection_->start();
  ticked_ = Clock::now();
  wait_to_tick();
  io_.start(rank(), [this](const Failure& failure) { alarm().raise(failure); });
  alarm().on_raise([this](const Failure& failure) { tell(failure); });
  // Rank 0 has a deadline of its own, and may have started as late as at the end of ours.
  const auto patience = 2 * operation_timeout() + 2s;
  if (!changed_.wait([&] { return met_.load() || alarm().raised(); }, Clock::now() + patience)) {
    alarm().raise({Failure::Kind::timeout,
                   fmt::format("rank {}: rank 0 {} does not say that all ranks have come, nor who "
                               "has not",
                               rank(), rank_zero_.text())});
  }
  alarm().check_waiting();
}

// Each wait has its bound: rank 0 may be stopped.
void PointPlace::close() {
  if (connection_) {
    depart();
    const auto over = [&] { return connection_->flushed() || connection_->ended(); };
    changed_.wait(over, Clock::now() + 2s);
    // Closed while rank 0's last words are unread, it would be reset, and ours with it.
    connection_->finish();
    changed_.wait([&] { return connection_->ended(); }, Clock::now() + 1s);
  }
  alarm().on_raise(nullptr);
  io_.stop();
  if (connection_) connection_->close();
}

void PointPlace::depart() {
  if (departed_.exchange(true)) return;
  alarm().depart(rank());
  say(encode(Departing{}));
}

void PointPlace::tell(const Failure& failure) {
  if (!told_.exchange(true)) say(encode(JobFailure{failure}));
  changed_.notify();
}

void PointPlace::hear(const Failure& failure) {
  told_.store(true);
  alarm().raise(failure);
}

void PointPlace::frame(Connection& /*connection*/, Frame&& frame) {
  switch (frame.kind) {
    case FrameKind::heartbeat:
      return;
    case FrameKind::met:
      met_.store(true);
      return changed_.notify();
    case FrameKind::combine:
      return deliver(decode<Combine>(frame));
    case FrameKind::result:
      return deliver(decode<Result>(frame));
    case FrameKind::patience:
      return deliver(decode<Patience>(frame));
    case FrameKind::failure:
      return hear(decode<JobFailure>(frame).failure);
    case FrameKind::departed:
      for (const int name : decode<Departed>(frame).names) {
        if (name >= 0 && name < size()) alarm().depart(name);
      }
      return;
    default:
      throw CommunicationError(
          fmt::format("rank 0 says what only others say ({})", static_cast<int>(frame.kind)));
  }
}

void PointPlace::ended(Connection& connection, const Connection::End& end) {
  if (departed_.load()) return;
  hear(lost(0, rank_zero_, connection, end));
}

void PointPlace::wait_to_tick() {
  tick_.expires_after(heartbeat_interval());
  tick_.async_wait([this](const asio::error_code& error) {
    if (!error) tick();
  });
}

void PointPlace::tick() {
  const auto now = Clock::now();
  // After a sleep of our own others have had no chance to be heard.
  if (now - ticked_ > 2 * heartbeat_interval()) connection_->pardon();
  ticked_ = now;
  if (!connection_->ended()) {
    say(encode(Heartbeat{}));
    if (now - connection_->heard() > most_silence() && !departed_.load())
      hear(silent(0, rank_zero_, *connection_));
  }
  wait_to_tick();
}

}  // namespace

std::unique_ptr<Place> make_point_place(const Meeting& meeting, std::shared_ptr<Alarm> alarm) {
  return std::make_unique<PointPlace>(meeting, std::move(alarm));
}

}  // namespace ration::tcp
