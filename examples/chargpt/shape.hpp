#pragma once
// The sizes of the model and the parameters that follow from them.

#include <cstdint>
#include <string>
#include <vector>

namespace chargpt {

struct Shape {
  int layers = 4;
  int width = 128;
  int heads = 4;
  int sequence = 64;
  int vocabulary = 0;
};

/// One parameter; weights are (out, in), row-major.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::int64_t count() const;
  /// Weight decay is for tensors of two or more dimensions, as is the custom with GPTs.
  [[nodiscard]] bool decays() const { return shape.size() >= 2; }
};

/// Parameters that are used together.
struct Layer {
  std::string name;
  std::vector<Tensor> tensors;
};

/// "embedding", "h.0", ..., "ln_f", with the names of GPT-2, in the order of the forward.
std::vector<Layer> layers_of(const Shape& shape);

}  // namespace chargpt
