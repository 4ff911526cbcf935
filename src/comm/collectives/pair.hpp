#pragma once
// send and recv as stream tasks: matched by the pair of ranks and their order, apart from the
// collectives.

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/collectives/exchange.hpp"

namespace ration {

/// Sends of one rank that go as messages: a send task only hands them over, so that two ranks may
/// send to each other before either receives.
class Outbox {
 public:
  void put(int receiver, std::uint64_t number, std::unique_ptr<Exchange> exchange);

  /// True once the message of that number, if there is one, is sent.
  template <class Describe>
  bool advance(int receiver, std::uint64_t number, const Describe& describe, bool may_block) {
    const std::shared_ptr<Sent> sent = find(receiver, number);
    if (!sent) return true;
    {
      const std::lock_guard lock(sent->mutex);
      if (!sent->exchange->advance(describe, may_block)) return false;
    }
    erase(receiver, number);
    return true;
  }

 private:
  struct Sent {
    std::mutex mutex;
    std::unique_ptr<Exchange> exchange;
  };
  std::shared_ptr<Sent> find(int receiver, std::uint64_t number);
  void erase(int receiver, std::uint64_t number);

  std::mutex mutex_;
  std::map<std::pair<int, std::uint64_t>, std::shared_ptr<Sent>> sent_;
};

class PairTask {
 public:
  /// `number` counts the operations from this sender to this receiver.
  PairTask(Waiter waiter, std::shared_ptr<Outbox> outbox, const Operation& operation,
           std::uint64_t number, const char* stream);
  bool operator()(bool may_block);

 private:
  enum class Phase { post, match, data };

  bool send(bool may_block);
  bool receive(bool may_block);
  bool match(bool may_block);
  bool match_near(bool may_block);
  bool match_far(bool may_block);
  void hand_over();

  [[nodiscard]] std::string what() const { return describe(operation_, number_); }
  [[nodiscard]] RankGroup& group() const { return waiter_.group(); }
  [[nodiscard]] Slot& received() const { return pair_->received[number_ % kPairSlots]; }
  [[nodiscard]] Slot& sent() const { return pair_->sent[number_ % kPairSlots]; }

  Waiter waiter_;
  std::shared_ptr<Outbox> outbox_;
  Operation operation_;
  std::uint64_t number_;
  const char* stream_;
  Pair* pair_ = nullptr;  // of near ranks
  Phase phase_ = Phase::post;
  std::unique_ptr<Posting> posting_;  // of a far sender
  std::unique_ptr<Exchange> exchange_;
};

/// Waits until the receiver has read the `send`.
class PairReleaseTask {
 public:
  PairReleaseTask(Waiter waiter, std::shared_ptr<Outbox> outbox, int receiver,
                  std::uint64_t number);
  bool operator()(bool may_block) const;

 private:
  Waiter waiter_;
  std::shared_ptr<Outbox> outbox_;
  int receiver_;
  std::uint64_t number_;
  Pair* pair_;
};

}  // namespace ration
