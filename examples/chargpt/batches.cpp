#include "batches.hpp"

#include <algorithm>

namespace chargpt {

Batches::Batches(std::span<const std::uint8_t> tokens, int sequence, int sequences,
                 const ration::DistributedSampler& sampler)
    : tokens_(tokens),
      sequence_(sequence),
      sequences_(sequences),
      sampler_(sampler),
      inputs_(static_cast<std::size_t>(sequence) * static_cast<std::size_t>(sequences)),
      targets_(inputs_.size()) {
  sampler_.set_epoch(epoch_);
  order_ = sampler_.indices();
}

std::int64_t Batches::next_item() {
  if (place_ == order_.size()) {
    sampler_.set_epoch(++epoch_);
    order_ = sampler_.indices();
    place_ = 0;
  }
  return order_[place_++];
}

void Batches::seek(std::int64_t items) {
  const auto in_epoch = static_cast<std::int64_t>(order_.size());
  epoch_ = static_cast<std::uint64_t>(items / in_epoch);
  place_ = static_cast<std::size_t>(items % in_epoch);
  sampler_.set_epoch(epoch_);
  order_ = sampler_.indices();
}

void Batches::next() {
  for (int s = 0; s < sequences_; ++s) {
    const auto* first = tokens_.data() + next_item() * sequence_;
    std::copy_n(first, sequence_, inputs_.data() + s * sequence_);
    std::copy_n(first + 1, sequence_, targets_.data() + s * sequence_);
  }
}

}  // namespace chargpt
