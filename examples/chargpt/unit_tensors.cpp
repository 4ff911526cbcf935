#include "unit_tensors.hpp"

#include <algorithm>
#include <utility>

namespace chargpt {

namespace {

/// Where a tensor's successor starts in the scratch: aligned as the optimizer aligns its own.
std::size_t padded(std::size_t count) {
  return (count + 63) / 64 * 64;
}

std::size_t padded_size(const Layer& layer) {
  std::size_t size = 0;
  for (const auto& tensor : layer.tensors) size += padded(static_cast<std::size_t>(tensor.count()));
  return size;
}

void widen(const ration::bf16* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void add_rounded(const float* from, ration::bf16* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<ration::bf16>(static_cast<float>(to[i]) + from[i]);
  }
}

}  // namespace

Scratch::Scratch(std::span<const Layer> layers) {
  std::size_t size = 0;
  for (const Layer& layer : layers) size = std::max(size, padded_size(layer));
  weights_ = Buffer<float>(size);
  gradients_ = Buffer<float>(size);
}

UnitTensors::UnitTensors(ration::Unit unit, const Layer& layer, Scratch* scratch)
    : unit_(unit), scratch_(scratch) {
  std::size_t offset = 0;
  for (const auto& tensor : layer.tensors) {
    const auto count = static_cast<std::size_t>(tensor.count());
    tensors_.push_back({unit_[tensor.name], count, offset});
    offset += padded(count);
  }
  weights_.resize(tensors_.size());
  gradients_.resize(tensors_.size());
}

std::span<const float* const> UnitTensors::weights(const ration::Gathered& gathered) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& [parameter, count, offset] = tensors_[i];
    if (scratch_) {
      float* copy = scratch_->weights_ + offset;
      widen(gathered.data<ration::bf16>(parameter), copy, count);
      weights_[i] = copy;
    } else {
      weights_[i] = gathered.data<float>(parameter);
    }
  }
  return weights_;
}

std::span<float* const> UnitTensors::gradients() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& [parameter, count, offset] = tensors_[i];
    if (scratch_) {
      gradients_[i] = scratch_->gradients_ + offset;
      std::fill_n(gradients_[i], count, 0.0f);
    } else {
      gradients_[i] = unit_.gradient<float>(parameter);
    }
  }
  return gradients_;
}

void UnitTensors::ready() {
  if (scratch_) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto& [parameter, count, offset] = tensors_[i];
      add_rounded(gradients_[i], unit_.gradient<ration::bf16>(parameter), count);
    }
  }
  unit_.gradients_ready();
}

}  // namespace chargpt
