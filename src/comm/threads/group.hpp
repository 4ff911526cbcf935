#pragma once
// What the ranks of a group share: for each rank a ring of slots, in which it posts what it asks
// for, where peers read it and the memory it points to.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/threads/threads.hpp"
#include "control/in_process/in_process.hpp"
#include "core/signal.hpp"

namespace ration {

/// An operation as one rank posted it. Written by its rank only. The counters hold the number of
/// the operation + 1 and grow with every use of the slot, so "at least" is the question to ask.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted{0};   ///< what is below may be read
  std::atomic<std::uint64_t> reduced{0};  ///< all_reduce: the own part of `recv` is the sum
  std::atomic<std::uint64_t> done{0};     ///< the rank reads no peer's memory for it any more
  std::uint64_t fingerprint = 0;
  Operation operation;
  const void* source = nullptr;  ///< where peers read: operation.send, or `eager`
  char tag[40] = {};             ///< a copy: the tag's own memory lasts as long as the operation

  /// A small all_reduce or broadcast carries its data along and needs no second wait.
  static constexpr std::size_t kEager = 512;
  alignas(64) std::byte eager[kEager];

  void post(const Operation& what, std::uint64_t number);
  [[nodiscard]] static bool is_eager(const Operation& operation);
  /// Whether peers read this rank's `send` itself.
  [[nodiscard]] static bool leaves_send_in_reach(const Operation& operation, int rank);
  [[nodiscard]] std::string describe(std::uint64_t number) const;
};

class ThreadsGroup {
 public:
  static constexpr std::uint64_t kRing = 64;
  static constexpr std::uint64_t kPairRing = 8;

  /// `names`: each rank's number in the whole job. The alarm is one for the whole job: an abort of
  /// any group ends them all.
  ThreadsGroup(std::vector<int> names, ThreadsOptions::Mode mode, std::shared_ptr<Alarm> alarm);

  [[nodiscard]] int size() const { return static_cast<int>(names_.size()); }
  [[nodiscard]] int name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] ThreadsOptions::Mode mode() const { return mode_; }
  [[nodiscard]] Alarm& alarm() { return *alarm_; }
  [[nodiscard]] const std::shared_ptr<Alarm>& shared_alarm() const { return alarm_; }
  [[nodiscard]] const std::shared_ptr<InProcessHub>& hub() const { return hub_; }

  Slot& slot(int rank, std::uint64_t number) { return member(rank).ring[number % kRing]; }

  /// Notified whenever `rank` posts or is done.
  Signal& signal(int rank) { return member(rank).signal; }

  /// The slots of operations from `sender` to `receiver`: one ring on each side.
  struct Pair {
    std::array<Slot, kPairRing> sent;
    std::array<Slot, kPairRing> received;
  };
  Pair& pair(int sender, int receiver);

  /// Holds memory that peers may read until every rank has left the group.
  void keep(std::shared_ptr<Memory> memory);

  /// From the one rank that makes a shared object to all that use it: `leave` gives its number
  /// away, `takers` times `take` gives it out.
  std::uint64_t leave(std::shared_ptr<void> object, int takers);
  std::shared_ptr<void> take(std::uint64_t number);

 private:
  struct Member {
    Signal signal;
    std::array<Slot, kRing> ring;
  };
  Member& member(int rank) { return *members_[static_cast<std::size_t>(rank)]; }

  const std::vector<int> names_;
  const ThreadsOptions::Mode mode_;
  const std::shared_ptr<Alarm> alarm_;
  const std::shared_ptr<InProcessHub> hub_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<Pair>> pairs_;
  std::map<std::uint64_t, std::pair<std::shared_ptr<void>, int>> left_;
  std::uint64_t next_left_ = 0;
  std::vector<std::shared_ptr<Memory>> kept_;
};

}  // namespace ration
