#include "engine/background_save.hpp"

#include <cstring>

#include "checkpoint/agreement.hpp"
#include "core/align.hpp"
#include "core/log.hpp"
#include "state/plan.hpp"

namespace ration::detail {

namespace {

const checkpoint::KindEntry& kind_of(const checkpoint::OptimizerEntry& entry, int flat, int kind) {
  int number = 0;
  for (const checkpoint::UnitEntry& unit : entry.units) {
    if (flat < number + static_cast<int>(unit.flats.size())) {
      return unit.flats[static_cast<std::size_t>(flat - number)]
          .kinds[static_cast<std::size_t>(kind)];
    }
    number += static_cast<int>(unit.flats.size());
  }
  return entry.units.back().flats.back().kinds.back();  // slices name flats that exist
}

}  // namespace

SavedCopy::SavedCopy(const checkpoint::SavedPart& part, const std::vector<std::byte*>& places)
    : entry_(part.describe()), slices_(part.slices()), first_slice_(places.size(), 0) {
  int flat = -1;
  std::byte* place = nullptr;
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    const checkpoint::Slice& slice = slices_[s];
    if (slice.flat != flat) {
      flat = slice.flat;
      place = places[static_cast<std::size_t>(flat)];
      first_slice_[static_cast<std::size_t>(flat)] = s;
    }
    data_.push_back(place);
    part.read(slice.flat, slice.kind, slice.start, slice.length, place);
    const auto bytes =
        slice.length * static_cast<std::int64_t>(size_of(kind_of(entry_, flat, slice.kind).dtype));
    place += round_up(bytes, kSnapshotAlignment);
  }
}

void SavedCopy::read(int flat, int kind, std::int64_t first, std::int64_t count,
                     std::byte* to) const {
  const std::size_t s =
      first_slice_[static_cast<std::size_t>(flat)] + static_cast<std::size_t>(kind);
  const auto element = static_cast<std::int64_t>(size_of(kind_of(entry_, flat, kind).dtype));
  std::memcpy(to, data_[s] + (first - slices_[s].start) * element,
              static_cast<std::size_t>(count * element));
}

BackgroundSave::BackgroundSave(std::shared_ptr<Communicator> communicator,
                               checkpoint::SaveRequest request,
                               std::vector<std::unique_ptr<checkpoint::SavedPart>> parts)
    : communicator_(std::move(communicator)),
      request_(std::move(request)),
      parts_(std::move(parts)),
      thread_([this] { run(); }) {}

BackgroundSave::~BackgroundSave() {
  join();
  if (failure_ && !told_) log::warning("a save beside the training failed: {}", failure_->text);
}

void BackgroundSave::run() {
  log::set_thread_rank(communicator_->rank());
  failure_ = checkpoint::failure_of([&] {
    std::vector<const checkpoint::SavedPart*> parts;
    for (const auto& part : parts_) parts.push_back(part.get());
    report_ = checkpoint::save(communicator_->control(), request_, parts);
  });
  ended_.store(true, std::memory_order_release);
}

bool BackgroundSave::has_failed() const {
  return ended_.load(std::memory_order_acquire) && failure_ && !told_;
}

void BackgroundSave::join() {
  if (thread_.joinable()) thread_.join();
}

SaveReport BackgroundSave::wait() {
  join();
  if (failure_ && !told_) {
    told_ = true;
    failure_->raise();
  }
  return report_;
}

}  // namespace ration::detail
