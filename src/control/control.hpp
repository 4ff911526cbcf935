#pragma once
// Small host records between ranks: what a step, a save or a split has to agree on. In one process
// it is memory, between processes TCP or MPI; data travels by the Communicator.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/signal.hpp"

namespace ration {

using Bytes = std::vector<std::byte>;

class Control {
 public:
  virtual ~Control() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Combines one record per rank, in rank order, to one result. Runs once per fold, on one thread,
  /// for all ranks.
  using Combine = std::function<void(std::span<const Bytes> records, Bytes& result)>;

  /// Collective: every rank of the group gives `record` on `channel` and gets what `combine` made
  /// of them all. Folds of one channel are matched in order, different channels are independent.
  /// `what` names the fold in messages. Throws Timeout naming the ranks that are missing,
  /// RemoteError after an abort.
  virtual void fold(std::string_view channel, const Bytes& record, const Combine& combine,
                    Bytes& result, std::string_view what) = 0;

  /// Makes every present and later wait of every rank (of the group, its parts and its whole) throw
  /// RemoteError with `reason`. The first reason stays. Not collective, any thread.
  virtual void abort(std::string_view reason) = 0;

  /// The reason, once aborted.
  [[nodiscard]] virtual std::optional<std::string> aborted() const = 0;
};

}  // namespace ration
