#pragma once
// A save beside the training: over a copy of the state, on a thread of its own.

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/part.hpp"
#include "checkpoint/save.hpp"
#include "comm/communicator.hpp"
#include "core/failure.hpp"

namespace ration::detail {

/// A copy of what a part saves, in memory that was planned for it.
class SavedCopy final : public checkpoint::SavedPart {
 public:
  /// Copies. `places` is, by flat, memory for all of the part's slices of it.
  SavedCopy(const checkpoint::SavedPart& part, const std::vector<std::byte*>& places);

  [[nodiscard]] const checkpoint::OptimizerEntry& describe() const override { return entry_; }
  [[nodiscard]] std::vector<checkpoint::Slice> slices() const override { return slices_; }
  void read(int flat, int kind, std::int64_t first, std::int64_t count,
            std::byte* to) const override;

 private:
  checkpoint::OptimizerEntry entry_;
  std::vector<checkpoint::Slice> slices_;
  std::vector<const std::byte*> data_;    ///< by slice
  std::vector<std::size_t> first_slice_;  ///< by flat
};

/// Collective: ranks whose outcome is the same.
class BackgroundSave {
 public:
  BackgroundSave(std::shared_ptr<Communicator> communicator, checkpoint::SaveRequest request,
                 std::vector<std::unique_ptr<checkpoint::SavedPart>> parts);
  /// Waits for the end.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Waits for the end, whatever it is: the copies may be freed.
  void join();
  /// It has ended badly, and nobody was told yet.
  [[nodiscard]] bool has_failed() const;
  /// Waits for the end. Throws what went wrong, once.
  SaveReport wait();

 private:
  void run();

  std::shared_ptr<Communicator> communicator_;
  checkpoint::SaveRequest request_;
  std::vector<std::unique_ptr<checkpoint::SavedPart>> parts_;
  SaveReport report_;
  std::optional<Failure> failure_;
  std::atomic<bool> ended_{false};
  bool told_ = false;
  std::thread thread_;
};

}  // namespace ration::detail
