#include "control/in_process/in_process.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "core/failure.hpp"
#include "core/timeout.hpp"
#include "device/host/polling_wait.hpp"

namespace ration {
namespace {

/// One fold. The records and the result keep their capacity from one use to the next.
struct Round {
  std::vector<Bytes> records;
  std::vector<char> present;
  int arrived = 0;
  Bytes result;
  bool failed = false;
  Failure failure;
  std::atomic<std::uint64_t> complete{0};  // the number of the fold + 1
};

/// Folds alternate between two rounds: whoever enters fold s + 2 has seen fold s + 1 complete, so
/// all ranks had come to that, so all had left fold s.
struct Channel {
  std::string name;
  std::mutex mutex;
  std::array<Round, 2> rounds;
  std::vector<std::uint64_t> next;  // by rank; each touched by its own rank only
  Signal signal;
};

}  // namespace

class InProcessHub {
 public:
  InProcessHub(std::vector<int> names, std::shared_ptr<Alarm> alarm)
      : names_(std::move(names)), alarm_(std::move(alarm)) {}

  [[nodiscard]] int size() const { return static_cast<int>(names_.size()); }
  [[nodiscard]] int name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  Alarm& alarm() { return *alarm_; }

  Channel& channel(std::string_view name) {
    const std::lock_guard lock(mutex_);
    for (const auto& channel : channels_) {
      if (channel->name == name) return *channel;
    }
    auto channel = std::make_unique<Channel>();
    channel->name = name;
    channel->next.resize(names_.size());
    for (Round& round : channel->rounds) {
      round.records.resize(names_.size());
      round.present.resize(names_.size());
    }
    channels_.push_back(std::move(channel));
    return *channels_.back();
  }

 private:
  const std::vector<int> names_;
  const std::shared_ptr<Alarm> alarm_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

namespace {

class InProcessControl final : public Control {
 public:
  InProcessControl(std::shared_ptr<InProcessHub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return hub_->size(); }

  void fold(std::string_view channel_name, const Bytes& record, const Combine& combine,
            Bytes& result, std::string_view what) override {
    hub_->alarm().check_arriving();
    Channel& channel = hub_->channel(channel_name);
    const std::uint64_t number = channel.next[static_cast<std::size_t>(rank_)]++;
    Round& round = channel.rounds[number % 2];
    if (arrive(channel, round, record)) {
      run(round, combine);
      round.complete.store(number + 1, std::memory_order_release);
      channel.signal.notify();
    } else {
      await(channel, round, number, what);
    }
    if (round.failed) round.failure.raise();
    result.assign(round.result.begin(), round.result.end());
  }

  void abort(std::string_view reason) override {
    hub_->alarm().raise({Failure::Kind::remote_error, std::string(reason)});
  }

  [[nodiscard]] std::optional<std::string> aborted() const override {
    return hub_->alarm().reason();
  }

 private:
  bool arrive(Channel& channel, Round& round, const Bytes& record) {
    const std::lock_guard lock(channel.mutex);
    const auto self = static_cast<std::size_t>(rank_);
    round.records[self].assign(record.begin(), record.end());
    round.present[self] = 1;
    if (++round.arrived < hub_->size()) return false;
    round.arrived = 0;
    round.present.assign(round.present.size(), 0);
    return true;
  }

  // The last to arrive is alone with the round until it says complete.
  static void run(Round& round, const Combine& combine) {
    round.failed = false;
    round.result.clear();
    try {
      combine(round.records, round.result);
    } catch (...) {
      round.failure = Failure::current();
      round.failed = true;
    }
  }

  void await(Channel& channel, Round& round, std::uint64_t number, std::string_view what) {
    Alarm& alarm = hub_->alarm();
    const auto complete = [&] {
      return round.complete.load(std::memory_order_acquire) == number + 1;
    };
    const auto timeout = operation_timeout();
    int ended = -1;  // a rank that will never come
    const auto hopeless = [&] {
      if (!alarm.any_departed()) return false;
      const std::vector<int> names = missing(channel, round);
      if (names.size() == round.present.size())
        return false;  // all have come: it is being combined
      for (const int name : names) {
        if (alarm.departed(name)) ended = name;
      }
      return ended >= 0;
    };
    while (!wait_polling(
        channel.signal, [&] { return complete() || alarm.raised() || hopeless(); },
        Clock::now() + timeout)) {
      const std::vector<int> names = missing(channel, round);
      if (names.size() == round.present.size()) continue;  // all have come: it is being combined
      const double seconds = std::chrono::duration<double>(timeout).count();
      alarm.raise(
          {Failure::Kind::timeout,
           fmt::format("rank {}: {} ({} #{}): timed out after {:.1f} s waiting for rank{} {}",
                       hub_->name(rank_), what, channel.name, number, seconds,
                       names.size() == 1 ? "" : "s", fmt::join(names, ", "))});
    }
    if (complete()) return;
    if (ended >= 0) {
      alarm.raise({Failure::Kind::communication_error,
                   fmt::format("rank {}: {} ({} #{}): rank {} has ended without it; every rank "
                               "must make the same calls",
                               hub_->name(rank_), what, channel.name, number, ended)});
    }
    alarm.check_waiting();
  }

  std::vector<int> missing(Channel& channel, const Round& round) const {
    std::vector<int> names;
    const std::lock_guard lock(channel.mutex);
    for (int rank = 0; rank < hub_->size(); ++rank) {
      if (!round.present[static_cast<std::size_t>(rank)]) names.push_back(hub_->name(rank));
    }
    return names;
  }

  const std::shared_ptr<InProcessHub> hub_;
  const int rank_;
};

}  // namespace

std::shared_ptr<InProcessHub> make_in_process_hub(std::vector<int> names,
                                                  std::shared_ptr<Alarm> alarm) {
  return std::make_shared<InProcessHub>(std::move(names), std::move(alarm));
}

std::unique_ptr<Control> make_in_process_control(std::shared_ptr<InProcessHub> hub, int rank) {
  return std::make_unique<InProcessControl>(std::move(hub), rank);
}

std::vector<std::unique_ptr<Control>> make_in_process_controls(int ranks) {
  std::vector<int> names(static_cast<std::size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  const auto hub = make_in_process_hub(std::move(names), std::make_shared<Alarm>(ranks));
  std::vector<std::unique_ptr<Control>> ends;
  for (int rank = 0; rank < ranks; ++rank) ends.push_back(make_in_process_control(hub, rank));
  return ends;
}

}  // namespace ration
