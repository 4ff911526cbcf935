#pragma once
// The part of an operation that goes by messages: postings to far peers, and the data of those
// whose memory cannot be read.

#include <functional>
#include <memory>
#include <vector>

#include "comm/collectives/waiter.hpp"

namespace ration {

/// Messages to and from peers under one tag, all on their way at once.
class Exchange {
 public:
  Exchange(const Waiter& waiter, std::uint32_t tag) : waiter_(waiter), tag_(tag) {}

  void send(int peer, const void* data, std::size_t bytes);
  void receive(int peer, void* data, std::size_t bytes);
  /// Under another tag, of something that the Exchange then keeps.
  void send_owned(int peer, std::uint32_t tag, std::shared_ptr<const void> data, std::size_t bytes);

  /// True once all are done; false if not and it may not block.
  template <class Describe>
  bool advance(const Describe& describe, bool may_block) {
    return advance(describe, may_block, Waiter::nobody_else);
  }
  /// `also` adds to the ranks that a Timeout names.
  template <class Describe, class Also>
  bool advance(const Describe& describe, bool may_block, const Also& also) {
    const auto missing = [&] {
      std::vector<int> ranks = this->missing();
      also(ranks);
      return ranks;
    };
    while (!waiting_.empty()) {
      if (!waiter_.await_message(*waiting_.back().message, waiting_.back().peer, missing, describe,
                                 may_block)) {
        return false;
      }
      waiting_.pop_back();
    }
    return true;
  }

  /// The peers from which something is missing (if nothing is, those that have not taken theirs).
  [[nodiscard]] std::vector<int> missing() const;

 private:
  struct Waiting {
    std::unique_ptr<Message> message;
    int peer;
    bool incoming;
  };

  Waiter waiter_;
  std::uint32_t tag_;
  std::shared_ptr<const void> owned_;  // outlives the messages
  std::vector<Waiting> waiting_;
};

/// A long transfer in pieces, two of them on their way: `start(piece)` fills an Exchange with one,
/// `finish(piece)` is called, in order, once it is done.
class Pieces {
 public:
  using Start = std::function<void(std::size_t piece, Exchange& exchange)>;
  using Finish = std::function<void(std::size_t piece)>;
  Pieces(const Waiter& waiter, std::uint32_t tag, std::size_t pieces, Start start, Finish finish)
      : waiter_(waiter),
        tag_(tag),
        pieces_(pieces),
        start_(std::move(start)),
        finish_(std::move(finish)) {}

  template <class Describe>
  bool advance(const Describe& describe, bool may_block) {
    while (finished_ < pieces_) {
      start_what_fits();
      if (!exchanges_[finished_ % kDepth]->advance(describe, may_block)) return false;
      finish_(finished_++);
    }
    return true;
  }

  /// Pieces on their way at once.
  static constexpr std::size_t kDepth = 2;

 private:
  void start_what_fits();

  Waiter waiter_;
  std::uint32_t tag_;
  std::size_t pieces_;
  Start start_;
  Finish finish_;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::unique_ptr<Exchange> exchanges_[kDepth];
};

}  // namespace ration
