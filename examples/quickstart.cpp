// A two-layer network learns y = sin(3 a) b on four ranks, with gradients and optimizer state
// sharded (stage 2). Each rank draws its own points; Ration makes the ranks one training.

#include <Eigen/Core>
#include <cmath>
#include <cstdio>
#include <random>

#include <ration/ration.hpp>

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Weights = Eigen::Map<const Matrix>;
using Gradient = Eigen::Map<Matrix>;

constexpr int kHidden = 64, kPoints = 128, kSteps = 1000;

void train(ration::World& world) {
  // 1. Say what the model is: parameters by name and shape, in units that are used together.
  ration::ShardedOptimizer optimizer(world, {.stage = 2});
  optimizer.add_group(ration::AdamW{.learning_rate = 1e-2});
  const ration::Unit first = optimizer.add_unit(
      "first", {{.name = "w1", .shape = {2, kHidden}}, {.name = "b1", .shape = {1, kHidden}}});
  const ration::Unit second = optimizer.add_unit("second", {{.name = "w2", .shape = {kHidden, 1}}});
  const ration::Parameter w1 = first["w1"], b1 = first["b1"], w2 = second["w2"];

  // 2. Fill it; every rank starts from the same values.
  optimizer.initialize(ration::normal(0.5, /*seed=*/1));
  if (world.rank() == 0) std::printf("memory of a rank:\n%s\n", optimizer.memory().table().c_str());

  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Matrix x(kPoints, 2), y(kPoints, 1);

  for (int step = 1; step <= kSteps; ++step) {
    for (int i = 0; i < kPoints; ++i) {
      x(i, 0) = uniform(random);
      x(i, 1) = uniform(random);
      y(i, 0) = std::sin(3 * x(i, 0)) * x(i, 1);
    }

    // 3. Forward. A guard makes a unit's weights whole on this rank, while it lives.
    const ration::MicroStep micro = optimizer.micro_step();
    ration::Gathered whole_first = first.gather(), whole_second = second.gather();
    const Weights weight_1(whole_first.data<float>(w1), 2, kHidden);
    const Weights bias_1(whole_first.data<float>(b1), 1, kHidden);
    const Weights weight_2(whole_second.data<float>(w2), kHidden, 1);
    const Matrix hidden = ((x * weight_1).rowwise() + bias_1.row(0)).array().tanh();
    const Matrix error = hidden * weight_2 - y;

    // 4. Backward, last unit first. What is ready is reduced while the rest is computed.
    micro.begin_backward();
    const Matrix d_output = error * (2.0f / kPoints);
    Gradient(second.gradient<float>(w2), kHidden, 1) += hidden.transpose() * d_output;
    second.gradients_ready();
    const Matrix d_hidden =
        (d_output * weight_2.transpose()).array() * (1 - hidden.array().square());
    Gradient(first.gradient<float>(w1), 2, kHidden) += x.transpose() * d_hidden;
    Gradient(first.gradient<float>(b1), 1, kHidden) += d_hidden.colwise().sum();
    first.gradients_ready();
    whole_first.release();
    whole_second.release();

    // 5. The step: the mean over ranks, clipped, applied; metrics are summed over ranks.
    const ration::StepReport report = optimizer.step(
        {.clip_norm = 1.0, .metrics = {static_cast<double>(error.squaredNorm()) / kPoints}});
    if (world.rank() == 0 && (step == 1 || step % 100 == 0)) {
      std::printf("step %4d  loss %.5f  gradient norm %.4f\n", step,
                  report.metrics[0] / world.size(), report.gradient_norm);
    }
    if (report.stop_requested) break;
  }
}

int main(int argc, char** argv) {
  return ration::launch(argc, argv, train, {.ranks = 4});
}
