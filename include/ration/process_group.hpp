#pragma once
// A set of ranks that work together. A rank is a thread or a process; the code cannot tell.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace ration {

class Communicator;

/// Handle to a process group, cheap to copy. All members but the observers are collective: every
/// rank of the group calls them, in the same order, each from its own thread. They throw Timeout,
/// RemoteError or CommunicationError.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<Communicator> communicator);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  /// Cuts the group in parts: ranks of equal colour form one, ordered by key, then by their rank
  /// here.
  [[nodiscard]] ProcessGroup split(int color, int key = 0) const;

  /// Returns when every rank has called it.
  void barrier() const;

  /// Sums each element over ranks in rank order, in place; the same bits on every rank.
  void all_reduce(std::span<double> values) const;

  /// Copies `bytes` of rank `root` to all.
  void broadcast(std::span<std::byte> bytes, int root) const;

  /// Makes every present and later call of every rank of this group, its parts and its whole throw
  /// RemoteError with `reason`. Not collective.
  void abort(std::string_view reason) const;

  /// The inside: for the library and for tests.
  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace ration
