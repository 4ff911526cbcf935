// Update rules beside torch::optim: the same weights after many steps, element by element.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <vector>

#include "update/model.hpp"

namespace ration {
namespace {

using testing::Model;
using testing::random_floats;
using testing::Types;

constexpr std::size_t kCount = 1000;
constexpr std::int64_t kSteps = 30;

template <class Optimizer, class Options>
void expect_same(const Rule& rule, const Options& options) {
  const std::vector<float> start = random_floats(kCount, 1, 1.0f);
  Model model(rule, Types{}, start);
  torch::Tensor parameter = torch::tensor(start).set_requires_grad(true);
  Optimizer optimizer(std::vector<torch::Tensor>{parameter}, options);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<float> gradient =
        random_floats(kCount, static_cast<std::uint32_t>(step), 2.0f);
    parameter.mutable_grad() = torch::tensor(gradient);
    optimizer.step();
    model.set_gradient(gradient);
    update::apply(rule, model.run(0, kCount, step));
    const std::vector<float> ours = model.weights();
    const float* theirs = parameter.data_ptr<float>();
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(ours[i], theirs[i], 1e-6f * std::fabs(theirs[i]) + 1e-6f)
          << update::name_of(rule) << ", step " << step << ", element " << i;
    }
  }
}

TEST(TorchOptim, SgdIsTheSame) {
  expect_same<torch::optim::SGD>(SGD{.learning_rate = 0.1, .weight_decay = 0.01},
                                 torch::optim::SGDOptions(0.1).weight_decay(0.01));
}

TEST(TorchOptim, SgdWithMomentumAndDampeningIsTheSame) {
  expect_same<torch::optim::SGD>(
      SGD{.learning_rate = 0.01, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01},
      torch::optim::SGDOptions(0.01).momentum(0.9).dampening(0.5).weight_decay(0.01));
}

TEST(TorchOptim, SgdWithNesterovIsTheSame) {
  expect_same<torch::optim::SGD>(
      SGD{.learning_rate = 0.01, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
      torch::optim::SGDOptions(0.01).momentum(0.9).nesterov(true).weight_decay(0.01));
}

TEST(TorchOptim, AdamIsTheSame) {
  expect_same<torch::optim::Adam>(
      Adam{.learning_rate = 0.01, .weight_decay = 0.01},
      torch::optim::AdamOptions(0.01).betas({0.9, 0.999}).weight_decay(0.01));
}

TEST(TorchOptim, AdamWIsTheSame) {
  expect_same<torch::optim::AdamW>(
      AdamW{.learning_rate = 0.01, .beta2 = 0.95, .weight_decay = 0.1},
      torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).weight_decay(0.1));
}

TEST(TorchOptim, AdagradIsTheSame) {
  expect_same<torch::optim::Adagrad>(
      Adagrad{.learning_rate = 0.05,
              .learning_rate_decay = 0.1,
              .weight_decay = 0.01,
              .initial_accumulator = 0.1},
      torch::optim::AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(
          0.1));
}

}  // namespace
}  // namespace ration
