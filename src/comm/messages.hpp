#pragma once
// Messages between the ranks of a job that cannot read each other's memory: what gloo and MPI are
// used for. The collectives above are ours, so that they give the promised bits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/signal.hpp"

namespace ration {

/// A peer's connection broke. Control says why, and ends the job; who meets this waits for that
/// verdict first.
class ConnectionLost : public std::runtime_error {
 public:
  ConnectionLost(int peer, const std::string& what) : std::runtime_error(what), peer_(peer) {}
  [[nodiscard]] int peer() const { return peer_; }

 private:
  int peer_;
};

/// A message on its way. Its memory belongs to it until it is done or destroyed.
class Message {
 public:
  /// Gives up what is not done: the memory is not touched any more once it returns. After that the
  /// two ranks must exchange no further messages under its tag.
  virtual ~Message() = default;
  /// True once done: sent (the memory may be rewritten) or received. False at the deadline; one
  /// that has passed asks without blocking. Throws ConnectionLost.
  virtual bool wait(Deadline deadline) = 0;
};

/// One per process, shared by all groups. Peers are numbers in the whole job. Any thread; two
/// threads never use the same tag at once.
class Messages {
 public:
  virtual ~Messages() = default;
  /// "gloo", "mpi".
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Messages from one rank to another under one tag are matched in order, sizes equal; different
  /// tags are independent. `bytes` may be 0, and more than 2^31. Tags are below kTags.
  static constexpr std::uint32_t kTags = 1 << 20;
  virtual std::unique_ptr<Message> send(int peer, std::uint32_t tag, const void* data,
                                        std::size_t bytes) = 0;
  virtual std::unique_ptr<Message> receive(int peer, std::uint32_t tag, void* data,
                                           std::size_t bytes) = 0;
};

}  // namespace ration
