#pragma once
// What a rank says of an operation it takes part in, and where its peers read it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/operation.hpp"

namespace ration {

/// Where a rank's memory is, in terms that its near peers understand (see RankGroup::find).
struct Place {
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  std::uint32_t arena = kNowhere;
  std::uint64_t segment = 0;  ///< where it begins, in its arena
  std::uint64_t length = 0;   ///< of the segment
  std::uint64_t offset = 0;   ///< in the segment
  [[nodiscard]] bool readable() const { return arena != kNowhere; }
};

/// An operation as a rank announces it: what all must agree on, and how to come by its data. Plain
/// data: far peers get it as a message.
struct Posting {
  std::uint64_t fingerprint = 0;
  std::uint64_t history = 0;
  std::uint64_t count = 0;
  Place source;  ///< of `send`
  Place target;  ///< of `recv`, for an all_reduce, whose parts peers collect from each other
  std::int32_t peer = -1;
  OperationKind kind{};
  DType type{};
  DType send_type{};
  char tag[45] = {};  ///< a copy: the tag's own memory lasts as long as the operation

  /// A small all_reduce or broadcast carries its data along and needs no second wait.
  static constexpr std::size_t kEager = 512;
  alignas(64) std::byte eager[kEager];

  void set(const Operation& operation);
  [[nodiscard]] static bool is_eager(const Operation& operation);
  [[nodiscard]] std::string describe(std::uint64_t number) const;
};

/// A place for one posting, written by its rank only, in memory that near peers see. The counters
/// hold the number of the operation + 1 and grow with every use of the slot, so "at least" is the
/// question to ask.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted{0};   ///< the posting may be read
  std::atomic<std::uint64_t> reduced{0};  ///< all_reduce: the own part of `recv` is the sum
  std::atomic<std::uint64_t> done{0};     ///< the rank reads no peer's memory for it any more
  Posting posting;

  void post(std::uint64_t number) { posted.store(number + 1, std::memory_order_release); }
};

/// Whether a slot's counter has come to the operation of that number.
inline bool reached(const std::atomic<std::uint64_t>& counter, std::uint64_t number) {
  return counter.load(std::memory_order_acquire) > number;
}

/// Slots are used in turn: the operation of number n has the slot n % ring.
inline constexpr std::uint64_t kSlots = 64;
inline constexpr std::uint64_t kPairSlots = 8;

/// The slots of operations from one rank to another: one ring on each side.
struct Pair {
  Slot sent[kPairSlots];
  Slot received[kPairSlots];
};

}  // namespace ration
