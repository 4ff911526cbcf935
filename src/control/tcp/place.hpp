#pragma once
// What a rank's controls ask of the star, whether the rank is in its middle or at a point of it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "control/alarm.hpp"
#include "control/tcp/protocol.hpp"
#include "control/tcp/star.hpp"
#include "core/signal.hpp"

namespace ration::tcp {

class StarControl;

class Place {
 public:
  Place(int rank, int size, std::shared_ptr<Alarm> alarm);
  virtual ~Place() = default;

  /// Returns when all ranks are there.
  virtual void meet() = 0;
  /// Says the rest, within a bounded time, and ends the thread. Nothing may be asked afterwards.
  virtual void close() = 0;

  // To rank 0's hub.
  virtual void open(Opening&& opening) = 0;
  virtual void record(Record&& record) = 0;
  virtual void result(Result&& result) = 0;
  virtual void late(Late&& late) = 0;
  virtual void leave(const Leaving& leaving) = 0;
  virtual void depart() = 0;
  [[nodiscard]] virtual std::size_t groups() const { return 0; }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] Alarm& alarm() { return *alarm_; }
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_.load(std::memory_order_relaxed); }

  void enter(std::uint64_t group, StarControl& control);
  void exit(std::uint64_t group);

 protected:
  // From the hub, to this process's control of a group. One that is gone by now is told nothing.
  void deliver(Combine&& combine);
  void deliver(Result&& result);
  void deliver(const Patience& patience);

  /// How often to say that one is alive.
  static std::chrono::milliseconds heartbeat_interval();
  /// How long others may say nothing.
  static std::chrono::milliseconds most_silence();

  std::atomic<std::uint64_t> sent_{0};
  Signal changed_;  // whoever waits in meet() or close() looks again

 private:
  StarControl* find(std::uint64_t group);

  const int rank_;
  const int size_;
  const std::shared_ptr<Alarm> alarm_;
  std::mutex controls_mutex_;
  std::unordered_map<std::uint64_t, StarControl*> controls_;
};

std::unique_ptr<Place> make_hub_place(const Meeting& meeting, std::shared_ptr<Alarm> alarm,
                                      std::unique_ptr<Listener> listener);
std::unique_ptr<Place> make_point_place(const Meeting& meeting, std::shared_ptr<Alarm> alarm);

}  // namespace ration::tcp
