#pragma once
// One collective of one rank as a stream's task: posts, waits for the peers it needs, works.

#include <bitset>

#include "comm/threads/waiter.hpp"

namespace ration {

/// The most ranks a group of threads may have.
inline constexpr int kMostThreads = 256;

/// Everything but send, recv and the gathers of shared shards.
class CollectiveTask {
 public:
  /// `stream` is a literal, for traces.
  CollectiveTask(Waiter waiter, const Operation& operation, std::uint64_t number,
                 const char* stream);
  bool operator()(bool may_block);

 private:
  enum class Phase { post, work, collect, close };

  bool post(bool may_block);
  bool work(bool may_block);
  bool reduce(bool may_block);
  bool gather(bool may_block);
  bool broadcast(bool may_block);
  bool collect(bool may_block);
  bool close(bool may_block);

  bool peers_posted(bool may_block);
  void finish();
  [[nodiscard]] Slot& slot(int rank) const { return waiter_.group().slot(rank, number_); }
  [[nodiscard]] Slot& own() const { return slot(waiter_.rank()); }

  Waiter waiter_;
  Operation operation_;
  std::uint64_t number_;
  const char* stream_;
  Phase phase_ = Phase::post;
  std::bitset<kMostThreads> copied_;
};

/// Waits until no peer reads the operation's `send` any more.
class ReleaseTask {
 public:
  ReleaseTask(Waiter waiter, std::uint64_t number) : waiter_(std::move(waiter)), number_(number) {}
  bool operator()(bool may_block) const;

 private:
  Waiter waiter_;
  std::uint64_t number_;
};

}  // namespace ration
