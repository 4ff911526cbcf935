// Two groups in one unit equal two optimizers of one process in double.

#include "model.hpp"

namespace ration::test {
namespace {

const std::vector<Entry> kEntries = {
    {"w0", {9, 7}, 0}, {"b0", {7}, 1}, {"w1", {12, 5}, 0}, {"b1", {5}, 1}};

// AdamW (Loshchilov and Hutter 2019, algorithm 2) over one parameter.
class Oracle {
 public:
  Oracle(const AdamW& rule, const std::vector<float>& weights)
      : rule_(rule),
        weights_(weights.begin(), weights.end()),
        first_(weights.size()),
        second_(weights.size()) {}

  void step(double rate, const std::function<double(std::size_t)>& gradient) {
    ++steps_;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const double g = gradient(i);
      weights_[i] -= rate * rule_.weight_decay * weights_[i];
      first_[i] = rule_.beta1 * first_[i] + (1 - rule_.beta1) * g;
      second_[i] = rule_.beta2 * second_[i] + (1 - rule_.beta2) * g * g;
      const double m = first_[i] / (1 - std::pow(rule_.beta1, steps_));
      const double v = second_[i] / (1 - std::pow(rule_.beta2, steps_));
      weights_[i] -= rate * m / (std::sqrt(v) + rule_.epsilon);
    }
  }
  [[nodiscard]] double operator[](std::size_t i) const { return weights_[i]; }

 private:
  AdamW rule_;
  std::vector<double> weights_, first_, second_;
  int steps_ = 0;
};

TEST(Groups, InOneUnitEqualTwoOptimizersInDouble) {
  constexpr int kRanks = 3;
  const AdamW decayed{.learning_rate = 0.1, .weight_decay = 0.1};
  const AdamW plain{.learning_rate = 0.2, .weight_decay = 0.0};
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(kRanks, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {decayed, plain}, kEntries);
      std::vector<Oracle> oracles;
      for (const Entry& e : kEntries)
        oracles.emplace_back(e.group == 0 ? decayed : plain, model.read(e.name));
      for (int step = 0; step < 10; ++step) {
        // A schedule: the rate of each step is the one set before it.
        const double factor = 1.0 / (1 + step);
        model.groups[0].set_learning_rate(0.1 * factor);
        model.groups[1].set_learning_rate(0.2 * factor);
        model.step();
        for (std::size_t p = 0; p < kEntries.size(); ++p) {
          oracles[p].step((kEntries[p].group == 0 ? 0.1 : 0.2) * factor, [&](std::size_t i) {
            double sum = 0;
            for (int rank = 0; rank < kRanks; ++rank)
              sum += static_cast<double>(gradient_at(step, rank, p, i));
            return sum / kRanks;
          });
        }
      }
      for (std::size_t p = 0; p < kEntries.size(); ++p) {
        const std::vector<float> weights = model.read(kEntries[p].name);
        for (std::size_t i = 0; i < weights.size(); ++i)
          EXPECT_NEAR(weights[i], oracles[p][i], 2e-5)
              << "stage " << stage << ", " << kEntries[p].name << "[" << i << "]";
      }
    });
  }
}

TEST(Groups, TheFirstIsTheDefault) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {.stage = 1});
  optimizer.add_group(SGD{.learning_rate = 0.25});
  optimizer.add_group(SGD{.learning_rate = 0.5});
  const Unit unit = optimizer.add_unit("u", {{.name = "w", .shape = {1}}});
  optimizer.initialize(constant(1));
  const MicroStep micro = optimizer.micro_step();
  micro.begin_backward();
  *unit.gradient<float>(unit["w"]) = 1.0f;
  unit.gradients_ready();
  optimizer.step();
  EXPECT_EQ(optimizer.read(unit["w"], "parameter"), std::vector<float>{0.75f});
}

}  // namespace
}  // namespace ration::test
