#pragma once
// One collective of one rank as a stream's task: posts, waits for the peers it needs, works.

#include <bitset>
#include <memory>

#include "comm/collectives/exchange.hpp"
#include "comm/collectives/work.hpp"

namespace ration {

/// Everything but send, recv and the gathers of shared shards.
///
/// What a peer has is read where it is, if the peer is near and its memory readable; otherwise it
/// comes as a message. Each direction is decided by where the sender's memory is, which its posting
/// says: so both sides know.
class CollectiveTask {
 public:
  /// `stream` is a literal, for traces.
  CollectiveTask(Waiter waiter, const Operation& operation, std::uint64_t number,
                 const char* stream);
  bool operator()(bool may_block);

 private:
  enum class Phase { post, work, collect, close };
  using Part = work::Part;

  bool post(bool may_block);
  bool work(bool may_block);
  bool reduce(bool may_block);
  bool gather(bool may_block);
  bool broadcast(bool may_block);
  bool collect(bool may_block);
  bool close(bool may_block);

  void start_gather();
  void start_broadcast();
  void start_reduce();
  void start_collect();
  void sum_own_part();
  void sum_piece(std::size_t piece);
  /// `piece` of what `peer` gets.
  [[nodiscard]] const void* outgoing_piece(int peer, std::size_t piece, Part elements) const;

  bool posted_by_all(bool may_block);
  bool far_posted(bool may_block);
  void start_pieces(
      std::size_t pieces, Pieces::Start start, Pieces::Finish finish = [](std::size_t) {});
  bool advance_pieces(bool may_block);
  [[nodiscard]] bool in_pieces() const { return remote_ && remote_->pieces; }
  void finish();

  [[nodiscard]] RankGroup& group() const { return waiter_.group(); }
  [[nodiscard]] int rank() const { return waiter_.rank(); }
  [[nodiscard]] int size() const { return waiter_.size(); }
  [[nodiscard]] Slot& slot(int rank) const { return group().slot(rank, number_); }
  [[nodiscard]] Slot& own() const { return slot(waiter_.rank()); }
  [[nodiscard]] const Posting& posting(int peer) const;
  [[nodiscard]] Part part(int rank) const;
  /// Of that part, in the wire's elements.
  [[nodiscard]] Part piece_of(int rank, std::size_t piece) const;
  /// The own place in near().
  [[nodiscard]] std::size_t near_index() const;
  [[nodiscard]] std::string what() const { return describe(operation_, number_); }

  /// Whether what this rank has in `place` goes to the peer (comes from it) as a message.
  [[nodiscard]] bool sends_to(int peer, const Place& place) const;
  [[nodiscard]] bool receives_from(int peer, Place Posting::*place) const;
  [[nodiscard]] bool any_messages(Place Posting::*place) const;

  /// What only operations with messages need.
  struct Remote {
    std::vector<Posting> postings;  ///< of far ranks
    std::unique_ptr<Exchange> posting_exchange;
    std::unique_ptr<Pieces> pieces;
    StagingPool::Buffer staging;
    std::size_t piece = 0;  ///< its elements, or bytes
  };
  Remote& remote();
  [[nodiscard]] std::byte* staged(std::size_t piece, int peer, bool incoming) const;

  Waiter waiter_;
  Operation operation_;
  std::uint64_t number_;
  const char* stream_;
  Phase phase_ = Phase::post;
  std::bitset<kMostNear> copied_;  // by place in near()
  std::unique_ptr<Remote> remote_;
};

/// Waits until no peer reads the operation's `send` any more.
class ReleaseTask {
 public:
  ReleaseTask(Waiter waiter, std::uint64_t number) : waiter_(std::move(waiter)), number_(number) {}
  bool operator()(bool may_block) const;

  /// Whether peers may read this rank's `send` after the operation's end here.
  [[nodiscard]] static bool is_needed(const Operation& operation, int rank);

 private:
  Waiter waiter_;
  std::uint64_t number_;
};

}  // namespace ration
