#pragma once
// The middle of the star: rank 0, to which all others are connected.

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <asio/steady_timer.hpp>

#include "control/tcp/connection.hpp"
#include "control/tcp/door.hpp"
#include "control/tcp/hub.hpp"
#include "control/tcp/io_thread.hpp"
#include "control/tcp/place.hpp"

namespace ration::tcp {

class HubPlace final : public Place, private Connection::Owner, private Door::Host, private Outlet {
 public:
  HubPlace(const Meeting& meeting, std::shared_ptr<Alarm> alarm,
           std::unique_ptr<Listener> listener);
  ~HubPlace() override { io_.stop(); }
  HubPlace(const HubPlace&) = delete;
  HubPlace& operator=(const HubPlace&) = delete;

  void meet() override;
  void close() override;

  void open(Opening&& opening) override { rule(hub_.open(0, std::move(opening))); }
  void record(Record&& record) override { rule(hub_.record(0, std::move(record))); }
  void result(Result&& result) override { rule(hub_.result(0, std::move(result))); }
  void late(Late&& late) override { judge_late(0, late); }
  void leave(const Leaving& leaving) override { rule(hub_.leave(0, leaving)); }
  void depart() override { depart(0); }
  [[nodiscard]] std::size_t groups() const override { return hub_.groups(); }

 private:
  // Another rank. Written on the io thread, under the mutex; read by any thread under it.
  struct Seat {
    std::shared_ptr<Connection> connection;
    Process process;
    bool departed = false;
  };

  Seat& seat_of(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  void rule(const Hub::Verdict& verdict);
  void judge_late(int from, Late& late);
  void depart(int rank);
  void announce_departures();
  [[nodiscard]] std::string remark(int rank);
  [[nodiscard]] bool all_gone();
  [[nodiscard]] std::vector<int> missing();

  void send(int rank, const SharedFrame& frame);
  void send_all(const SharedFrame& frame);
  void tell(const Failure& failure);
  void tick();
  void wait_to_tick();

  // Outlet: from the hub.
  void combine(int leader, Combine&& combine) override;
  void result(std::span<const int> members, Result&& result) override;
  // Door::Host
  std::optional<std::string> occupied(int rank) override;
  void seat(const Hello& hello, std::shared_ptr<Connection> connection) override;
  void wrong_size(const std::string& text) override;
  // Connection::Owner
  void frame(Connection& connection, Frame&& frame) override;
  void ended(Connection& connection, const Connection::End& end) override;

  IoThread io_;
  asio::steady_timer tick_;
  asio::steady_timer announcement_;
  Deadline ticked_;
  Hub hub_;
  std::unique_ptr<Door> door_;  // none when there is nobody else
  std::atomic<int> seated_{1};
  std::mutex mutex_;
  std::vector<Seat> seats_;
  std::vector<int> leavers_;  // departed and not yet announced
  std::optional<Failure> told_;
  std::atomic<Clock::rep> told_at_{0};
};

}  // namespace ration::tcp
