#pragma once
// Communicators around a communicator: they see every operation and pass it on.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace ration {

/// Compares a rolling fingerprint of every operation (kind, type, count, peer, tag, in order)
/// across ranks: ranks that diverge get a CommunicationError naming the rank and both operations
/// instead of wrong sums or a hang.
std::shared_ptr<Communicator> make_checked(std::shared_ptr<Communicator> inner);

/// What `recording` keeps of an operation.
struct RecordedOperation {
  Sequence sequence = 0;
  OperationKind kind{};
  DType type{};
  std::size_t count = 0;
  std::string tag;
  std::uint64_t sent_bytes = 0;
};

/// Keeps the last 1,024 operations and the bytes per kind, so that traffic can be asserted and a
/// timeout explained.
class Recording {
 public:
  virtual ~Recording() = default;
  [[nodiscard]] virtual std::vector<RecordedOperation> last() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes(OperationKind kind) const = 0;
  [[nodiscard]] virtual std::uint64_t operations(OperationKind kind) const = 0;
  /// The last operations as JSON, newest last.
  [[nodiscard]] virtual std::string json() const = 0;
};
struct RecordingCommunicator {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Recording> recording;
};
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
