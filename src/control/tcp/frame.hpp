#pragma once
// What travels on a connection: frames, each a length, a kind and a payload.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "control/control.hpp"

namespace ration::tcp {

enum class FrameKind : std::uint8_t {
  hello,      // to rank 0: who I am
  welcome,    // from rank 0: who it is
  refusal,    // from rank 0: why not
  seated,     // to rank 0: I have read the welcome, and stay
  met,        // from rank 0: all are there
  heartbeat,  // either way
  opening,    // to rank 0: the ranks of a group, by its leader
  record,     // to rank 0: one rank's part of a fold
  combine,    // from rank 0 to a group's leader: all parts
  result,     // to rank 0 by the leader, from there to the others
  late,       // to rank 0: a fold is past its deadline
  patience,   // from rank 0: all have come to it, it is being combined
  leaving,    // to rank 0: this rank's control in a group is gone
  failure,    // either way: the job has failed
  departing,  // to rank 0: this rank takes part in nothing any more
  departed,   // from rank 0: nor do these
};
constexpr std::uint8_t kFrameKinds = 16;

struct Frame {
  FrameKind kind = FrameKind::heartbeat;
  Bytes payload;
};

/// A frame as it is sent, perhaps to many.
using SharedFrame = std::shared_ptr<const Bytes>;

/// Length of the payload (4 bytes), kind (1 byte).
constexpr std::size_t kFrameHead = 5;

/// What a stranger may send at most.
constexpr std::size_t kMostOfStranger = 256;
/// What a rank may send at most.
constexpr std::size_t kMostOfRank = std::size_t{1} << 30;

/// Makes frames of bytes as they arrive. Memory grows with what has arrived, not with the length
/// that was announced.
class FrameDecoder {
 public:
  /// Payloads of more than `most` bytes are refused.
  explicit FrameDecoder(std::size_t most) : most_(most) {}
  void allow(std::size_t most) { most_ = most; }

  /// Takes bytes off the front of `input` until a frame is complete or nothing is left. Throws
  /// CommunicationError when they cannot be a frame; then nothing after them can be.
  std::optional<Frame> next(std::span<const std::byte>& input);

  /// How many bytes to take before there can be news; at least 1.
  [[nodiscard]] std::size_t wanted() const;

 private:
  void read_head();

  std::size_t most_;
  std::array<std::byte, kFrameHead> head_{};
  std::size_t head_bytes_ = 0;  // how many of them are there
  std::size_t length_ = 0;
  Frame frame_;
};

}  // namespace ration::tcp
