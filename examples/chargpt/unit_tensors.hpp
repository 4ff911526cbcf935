#pragma once
// A unit's weights and gradients as the model wants them, in fp32, whatever they are in memory.

#include <span>
#include <vector>

#include <ration/optimizer.hpp>

#include "model.hpp"
#include "shape.hpp"

namespace chargpt {

/// fp32 copies of one unit of a bf16 model; shared by units that are not used at the same time.
class Scratch {
 public:
  /// Room for the largest of `layers`.
  explicit Scratch(std::span<const Layer> layers);

 private:
  friend class UnitTensors;
  Buffer<float> weights_, gradients_;
};

class UnitTensors {
 public:
  /// `scratch` is null for an f32 model, whose tensors are used where they lie.
  UnitTensors(ration::Unit unit, const Layer& layer, Scratch* scratch);

  [[nodiscard]] const ration::Unit& unit() const { return unit_; }

  /// The weights in fp32, in the order of the layer, while `gathered` lives and the scratch has no
  /// other user.
  std::span<const float* const> weights(const ration::Gathered& gathered);

  /// The gradients in fp32, to add into, until `ready`.
  std::span<float* const> gradients();

  /// All gradients are written: hands them to the optimizer, in bf16 rounded once.
  void ready();

 private:
  struct Tensor {
    ration::Parameter parameter;
    std::size_t count;
    std::size_t offset;  ///< in the scratch
  };

  ration::Unit unit_;
  Scratch* scratch_;
  std::vector<Tensor> tensors_;
  std::vector<const float*> weights_;
  std::vector<float*> gradients_;
};

}  // namespace chargpt
