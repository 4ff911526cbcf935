#pragma once
// Communicators around a communicator: they see every operation and pass it on.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace ration {

/// Compares a rolling fingerprint of every operation (kind, type, count, peer, tag, in order)
/// across ranks: ranks that diverge get a CommunicationError naming the rank and both operations
/// instead of wrong sums or a hang.
std::shared_ptr<Communicator> make_checked(std::shared_ptr<Communicator> inner);

/// How far an operation has come on this rank. `failed`: it, or one before it in its stream.
enum class OperationState : std::uint8_t { submitted, done, failed };
std::string_view name_of(OperationState state);

/// What a recording keeps of an operation, or of a fold of control.
struct RecordedOperation {
  std::string group;      ///< "world"; "world/0:1" is colour 1 of the world's first split
  std::string_view kind;  ///< as name_of(OperationKind), or "fold"
  std::string channel;    ///< of a fold
  /// As in messages, from 0: collectives of a group, folds of a channel, sends and receives of a
  /// peer. What each rank does by itself (gathers of shards that it reads) counts apart.
  Sequence sequence = 0;
  bool matched = true;    ///< every rank of the group does the same
  std::string_view type;  ///< empty: a fold's
  std::size_t count = 0;  ///< elements; 0: a fold's
  std::string tag;        ///< its first 63 characters; what a fold is about
  int peer = -1;          ///< broadcast: the root; send, recv: the other rank
  /// Of all matched operations of the group up to this; equal on all ranks unless they diverged.
  std::uint64_t history = 0;
  std::uint64_t sent_bytes = 0;
  OperationState state = OperationState::submitted;
  double submitted_ms = 0;  ///< since the recording began
  double ended_ms = -1;     ///< -1: not yet
};

/// A process group that is, or was not long ago.
struct RecordedGroup {
  std::string name;
  int rank = 0;  ///< of this rank there
  int size = 1;
};

/// Keeps the last 1,024 operations and folds, of the group and its parts, and the bytes per kind:
/// so that traffic can be asserted, and a rank that fails can say what it did. Allocates nothing
/// per operation. Any thread may ask.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Oldest first.
  [[nodiscard]] virtual std::vector<RecordedOperation> last() const = 0;
  [[nodiscard]] virtual std::vector<RecordedGroup> groups() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes(OperationKind kind) const = 0;
  [[nodiscard]] virtual std::uint64_t operations(OperationKind kind) const = 0;
  /// When it began.
  [[nodiscard]] virtual std::chrono::system_clock::time_point began() const = 0;
  /// The last operations as JSON, newest last.
  [[nodiscard]] std::string json() const;
};
struct RecordingCommunicator {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Recording> recording;
};
/// Inside a checked communicator, so that it sees the operation as the backend does. What is
/// complete is seen by a small task behind each operation: its streams hold twice the tasks.
RecordingCommunicator make_recording(std::shared_ptr<Communicator> inner);

/// What a test does to an operation before it is submitted: `delay` milliseconds in its stream,
/// `drop` it on this rank, or throw from submit.
struct Fault {
  std::chrono::milliseconds delay{0};
  bool drop = false;
  bool fail = false;
};
std::shared_ptr<Communicator> make_faulty(std::shared_ptr<Communicator> inner,
                                          std::function<Fault(Sequence, const Operation&)> fault);

}  // namespace ration
