#include "shape.hpp"

namespace chargpt {

std::int64_t Tensor::count() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::vector<Layer> layers_of(const Shape& shape) {
  const std::int64_t width = shape.width;
  std::vector<Layer> layers;
  layers.push_back(
      {"embedding",
       {{"wte.weight", {shape.vocabulary, width}}, {"wpe.weight", {shape.sequence, width}}}});
  for (int k = 0; k < shape.layers; ++k) {
    const std::string h = "h." + std::to_string(k);
    layers.push_back({h,
                      {{h + ".ln_1.weight", {width}},
                       {h + ".ln_1.bias", {width}},
                       {h + ".attn.c_attn.weight", {3 * width, width}},
                       {h + ".attn.c_attn.bias", {3 * width}},
                       {h + ".attn.c_proj.weight", {width, width}},
                       {h + ".attn.c_proj.bias", {width}},
                       {h + ".ln_2.weight", {width}},
                       {h + ".ln_2.bias", {width}},
                       {h + ".mlp.c_fc.weight", {4 * width, width}},
                       {h + ".mlp.c_fc.bias", {4 * width}},
                       {h + ".mlp.c_proj.weight", {width, 4 * width}},
                       {h + ".mlp.c_proj.bias", {width}}}});
  }
  layers.push_back({"ln_f", {{"ln_f.weight", {width}}, {"ln_f.bias", {width}}}});
  return layers;
}

}  // namespace chargpt
