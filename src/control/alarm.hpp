#pragma once
// The end of a job as this process knows it: raised once, seen by every wait of every group that
// shares it.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/failure.hpp"
#include "core/signal.hpp"

namespace ration {

class Alarm {
 public:
  /// For the ranks of a job, of which this process may hold one or all.
  explicit Alarm(int ranks);

  /// The first failure stays. This, and all that throws here, comes back only when no rank reads
  /// another's memory any more, and from then on none will: so a rank that fails may unwind and
  /// free what its peers could have read.
  void raise(Failure failure);

  /// Called once, by whoever raises first, with what was raised: to tell other processes. At once
  /// when it is raised already. An empty function takes it back; then no call is under way any
  /// more.
  void on_raise(std::function<void(const Failure&)> tell);

  [[nodiscard]] bool raised() const { return raised_.load(std::memory_order_seq_cst); }
  [[nodiscard]] std::optional<std::string> reason() const;

  /// Throws the failure, when raised: as it is, for whoever was waiting when it came.
  void check_waiting() const;
  /// Throws it as RemoteError, when raised: for whoever arrives afterwards.
  void check_arriving() const;

  /// A rank of the job (by its number there) takes part in nothing any more: who waits for it waits
  /// in vain.
  void depart(int name);
  [[nodiscard]] bool departed(int name) const {
    return departed_[static_cast<std::size_t>(name)].load(std::memory_order_acquire);
  }
  [[nodiscard]] bool any_departed() const { return any_departed_.load(std::memory_order_acquire); }

  /// Around every read of another rank's memory. Throws when raised. Must not be held while
  /// waiting.
  class Reading {
   public:
    explicit Reading(Alarm& alarm);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    Alarm& alarm_;
  };

 private:
  void leave();
  void await_readers() const;

  alignas(64) std::atomic<bool> raised_{false};
  std::atomic<bool> any_departed_{false};
  const std::unique_ptr<std::atomic<bool>[]> departed_;  // by rank
  alignas(64) std::atomic<int> readers_{0};
  mutable Signal readers_left_;
  mutable std::mutex mutex_;
  Failure failure_;  // written once, under the mutex, before raised_
  std::mutex tell_mutex_;
  std::function<void(const Failure&)> tell_;
};

}  // namespace ration
