#pragma once
// The inside of a process group: collective operations, asynchronous on a stream.

#include <memory>
#include <string>

#include "comm/operation.hpp"
#include "control/control.hpp"
#include "core/timeout.hpp"
#include "device/memory.hpp"
#include "device/stream.hpp"

namespace ration {

/// Names an operation of its communicator to `release`. Later ones are not always greater.
using Sequence = std::uint64_t;

/// Shards, one per rank, written by their owners once a step and gathered by everyone. Where peers
/// can read an owner's memory (threads, shared windows) a gather is a copy on the reader's side: it
/// waits for the owners' publication only, with no closing barrier. Elsewhere it is an all_gather.
class SharedShards {
 public:
  virtual ~SharedShards() = default;
  /// The own shard is written; gathers of this epoch may read it. Not collective, does not wait.
  /// The first publication follows construction. Before the owner writes again, every rank must
  /// have finished its gathers of this epoch and have said so (the step header says so).
  virtual void publish() = 0;
  /// True when gathers need not be matched by other ranks' gathers: each rank may gather what and
  /// when it likes.
  [[nodiscard]] virtual bool one_sided() const = 0;
};

/// A rank's end of a process group. Used from the rank's own thread (and by its streams); `abort`
/// from any.
///
/// Operations are matched in the order in which the ranks submit them. When an operation is
/// complete in its stream, `recv` may be read. `send` may be rewritten only after `release` of the
/// operation's sequence (or, for backends that keep no reference, at once): on shared memory peers
/// may still be reading it.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// "threads", "gloo", ...
  [[nodiscard]] virtual std::string_view backend() const = 0;

  /// Puts the operation into the stream. Throws InvalidArgument for what the operation cannot mean;
  /// everything later (Timeout, RemoteError, CommunicationError) is thrown by whoever waits for the
  /// stream.
  ///  - reduce_scatter: send = size() shards of `count` elements; recv = the sum over ranks of the
  ///  own one. In rank order, as
  ///    Arithmetic::ordered_sum. In place: recv is the own shard inside send.
  ///  - all_gather: send = one shard of `count`; recv = all. In place: send is the own shard inside
  ///  recv.
  ///  - all_reduce: recv = the ordered sum of send; in place allowed. f32, bf16, f16, f64, i64.
  ///  - broadcast: send on the root (may equal recv), recv on all. send/recv: `count` elements to
  ///  and from `peer`.
  virtual Sequence submit(Stream& stream, const Operation& operation) = 0;

  /// Later work in `stream` waits until no peer reads the `send` of the operation any more.
  virtual void release(Stream& stream, Sequence sequence) = 0;

  /// Collective: makes shards of `bytes` each readable by all; `shard` is this rank's and stays
  /// where it is.
  virtual std::unique_ptr<SharedShards> share(const void* shard, std::size_t bytes) = 0;

  /// A stream for this communicator's operations; `name` is a literal. Putting in more than `tasks`
  /// that are not done waits for the oldest.
  virtual std::unique_ptr<Stream> make_stream(const char* name, std::size_t tasks = 256) = 0;

  /// Memory that this communicator, and all that are split from it, move best. Where peers read it
  /// directly it stays until every rank has left the communicator, whoever frees it before.
  virtual std::unique_ptr<Memory> allocate(std::size_t bytes) = 0;

  /// Collective: ranks of equal colour form a group, ordered by key, then by rank.
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;

  [[nodiscard]] virtual Control& control() = 0;

  void abort(std::string_view reason) { control().abort(reason); }

  /// This rank takes part in nothing any more, in any group of the job: who waits for it, now or
  /// later, gets CommunicationError at once. Not collective.
  virtual void depart() = 0;

  /// Bytes this rank has sent in reduces and gathers (for shards that peers read directly: has read
  /// of theirs).
  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
};

/// Bytes an operation makes this rank send, in a group of `size`.
std::uint64_t sent_by(const Operation& operation, int size);

}  // namespace ration
