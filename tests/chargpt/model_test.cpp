// chargpt's forward against formulas, its backward against differences of the forward.

#include "model.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "reference.hpp"

namespace chargpt {
namespace {

constexpr int kSequences = 2;

/// Weights, gradients and a batch of a small model, with nothing at a special value.
template <class T>
struct Fixture {
  explicit Fixture(const Shape& shape) : shape(shape), layers(layers_of(shape)) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (const Layer& layer : layers) {
      auto& w = weights.emplace_back();
      auto& g = gradients.emplace_back();
      for (const Tensor& tensor : layer.tensors) {
        const auto count = static_cast<std::size_t>(tensor.count());
        weight_memory.emplace_back(count);
        gradient_memory.emplace_back(count);
        const bool norm_weight = !tensor.decays() && tensor.name.ends_with("weight");
        for (std::size_t i = 0; i < count; ++i) {
          weight_memory.back()[i] = static_cast<T>((norm_weight ? 1 : 0) + 0.3 * normal(random));
        }
        w.push_back(weight_memory.back());
        g.push_back(gradient_memory.back());
      }
    }
    const auto tokens = static_cast<std::size_t>(kSequences * shape.sequence);
    for (std::size_t i = 0; i < tokens; ++i) {
      inputs.push_back(static_cast<std::uint8_t>(random() % shape.vocabulary));
      targets.push_back(static_cast<std::uint8_t>(random() % shape.vocabulary));
    }
  }

  double forward(Model<T>& model) {
    const EmbeddingTensors<const T> embedding(weights.front());
    model.embed(inputs, embedding);
    for (int k = 0; k < shape.layers; ++k) {
      model.forward(k, BlockTensors<const T>(weights[static_cast<std::size_t>(k) + 1]));
    }
    return model.loss(targets, Affine<const T>(weights.back()), embedding.wte);
  }

  void backward(Model<T>& model) {
    const EmbeddingTensors<const T> embedding(weights.front());
    model.loss_backward(Affine<const T>(weights.back()), embedding.wte,
                        Affine<T>(gradients.back()));
    for (int k = shape.layers; k-- > 0;) {
      const auto unit = static_cast<std::size_t>(k) + 1;
      model.backward(k, BlockTensors<const T>(weights[unit]), BlockTensors<T>(gradients[unit]));
    }
    model.embed_backward(inputs, EmbeddingTensors<T>(gradients.front()));
  }

  Shape shape;
  std::vector<Layer> layers;
  std::vector<Buffer<T>> weight_memory, gradient_memory;
  std::vector<std::vector<const T*>> weights;
  std::vector<std::vector<T*>> gradients;
  std::vector<std::uint8_t> inputs, targets;
};

const Shape kSmall{.layers = 2, .width = 8, .heads = 2, .sequence = 5, .vocabulary = 7};
/// More than one vector register in every loop, and nothing a multiple of one.
const Shape kRagged{.layers = 1, .width = 36, .heads = 3, .sequence = 21, .vocabulary = 19};

TEST(Model, LossIsThatOfTheFormulas) {
  for (const Shape& shape : {kSmall, kRagged}) {
    Fixture<double> f(shape);
    Model<double> model(shape, kSequences);
    EXPECT_NEAR(f.forward(model), reference::loss(shape, f.inputs, f.targets, f.weights), 1e-12);
  }
}

TEST(Model, GradientOfEveryElementIsTheSlopeOfTheLoss) {
  Fixture<double> f(kSmall);
  Model<double> model(kSmall, kSequences);
  f.forward(model);
  f.backward(model);
  constexpr double kStep = 1e-5;
  std::size_t memory = 0;
  for (const Layer& layer : f.layers) {
    for (const Tensor& tensor : layer.tensors) {
      double* weight = f.weight_memory[memory];
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        const double value = weight[i];
        weight[i] = value + kStep;
        const double above = f.forward(model);
        weight[i] = value - kStep;
        const double below = f.forward(model);
        weight[i] = value;
        EXPECT_NEAR(f.gradient_memory[memory][i], (above - below) / (2 * kStep), 1e-8)
            << tensor.name << "[" << i << "]";
      }
      ++memory;
    }
  }
}

TEST(Model, GradientsAreAddedToWhatIsThere) {
  Fixture<double> once(kSmall), twice(kSmall);
  Model<double> model(kSmall, kSequences);
  once.forward(model);
  once.backward(model);
  for (int pass = 0; pass < 2; ++pass) {
    twice.forward(model);
    twice.backward(model);
  }
  std::size_t memory = 0;
  for (const Layer& layer : once.layers) {
    for (const Tensor& tensor : layer.tensors) {
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        EXPECT_NEAR(twice.gradient_memory[memory][i], 2 * once.gradient_memory[memory][i], 1e-14)
            << tensor.name << "[" << i << "]";
      }
      ++memory;
    }
  }
}

TEST(Model, SinglePrecisionIsNearDouble) {
  Fixture<double> exact(kRagged);
  Fixture<float> f(kRagged);
  Model<double> exact_model(kRagged, kSequences);
  Model<float> model(kRagged, kSequences);
  EXPECT_NEAR(f.forward(model), exact.forward(exact_model), 1e-5);
  exact.backward(exact_model);
  f.backward(model);
  std::size_t memory = 0;
  for (const Layer& layer : f.layers) {
    for (const Tensor& tensor : layer.tensors) {
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        EXPECT_NEAR(f.gradient_memory[memory][i], exact.gradient_memory[memory][i], 2e-6)
            << tensor.name << "[" << i << "]";
      }
      ++memory;
    }
  }
}

TEST(Model, SameInputsGiveTheSameBitsInOtherMemory) {
  Fixture<float> a(kRagged), b(kRagged);
  Model<float> first(kRagged, kSequences);
  const std::vector<char> between(4097);  // moves what is allocated after it
  Model<float> second(kRagged, kSequences);
  EXPECT_EQ(a.forward(first), b.forward(second));
  a.backward(first);
  b.backward(second);
  std::size_t memory = 0;
  for (const Layer& layer : a.layers) {
    for (const Tensor& tensor : layer.tensors) {
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        ASSERT_EQ(a.gradient_memory[memory][i], b.gradient_memory[memory][i]) << tensor.name;
      }
      ++memory;
    }
  }
}

TEST(Shape, ParametersAreGpt2s) {
  const auto layers =
      layers_of({.layers = 3, .width = 8, .heads = 2, .sequence = 5, .vocabulary = 7});
  ASSERT_EQ(layers.size(), 5u);
  EXPECT_EQ(layers[0].tensors[0].name, "wte.weight");
  EXPECT_EQ(layers[0].tensors[0].shape, (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(layers[2].name, "h.1");
  EXPECT_EQ(layers[2].tensors[2].name, "h.1.attn.c_attn.weight");
  EXPECT_EQ(layers[2].tensors[2].shape, (std::vector<std::int64_t>{24, 8}));
  EXPECT_EQ(layers[2].tensors[10].shape, (std::vector<std::int64_t>{8, 32}));
  EXPECT_EQ(layers[4].tensors[1].name, "ln_f.bias");
}

}  // namespace
}  // namespace chargpt
