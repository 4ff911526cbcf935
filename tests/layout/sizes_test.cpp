// Sizes around the number of ranks, trained.

#include "support/throws.hpp"

namespace ration::test {
namespace {

class Sizes : public testing::TestWithParam<int> {};  // ranks

std::vector<TinyUnit> model_around(std::int64_t n) {
  return {
      {"around", {{"none", {0}}, {"one", {1}}, {"less", {n - 1}}, {"as", {n}}, {"more", {n + 1}}}},
      {"small", {{"scalar", {}}}},
      {"empty", {{"empty.w", {3, 0}}}},
      {"nothing", {}},
      {"long", {{"long.as", {64 * n}}, {"long.more", {64 * n + 1}}, {"long.less", {64 * n - 1}}}}};
}

// The gradient is the same number on all ranks but for the rank's part, so that the mean is exact.
float gradient(int step, int, int rank, int parameter, std::int64_t element, float) {
  return static_cast<float>(step + 1) + static_cast<float>(parameter) +
         0.25f * static_cast<float>(element % 5) + static_cast<float>(rank);
}

TEST_P(Sizes, EveryElementIsTrainedOnceAtEveryStage) {
  const int n = GetParam();
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(n, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = stage},
                                  .rule = SGD{.learning_rate = 0.5},
                                  .model = model_around(n),
                                  .gradient = gradient});
      ShardedOptimizer& optimizer = trainer.optimizer();
      std::vector<std::vector<float>> before;
      for (const Parameter& p : optimizer.parameters())
        before.push_back(optimizer.read(p, "parameter"));
      trainer.step();
      trainer.step();
      const auto parameters = optimizer.parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<float> after = optimizer.read(parameters[p], "parameter");
        ASSERT_EQ(static_cast<std::int64_t>(after.size()), parameters[p].count());
        for (std::size_t i = 0; i < after.size(); ++i) {
          double expected = before[p][i];
          for (int step = 0; step < 2; ++step) {
            double mean = 0;
            for (int rank = 0; rank < n; ++rank)
              mean += static_cast<double>(gradient(step, 0, rank, static_cast<int>(p),
                                                   static_cast<std::int64_t>(i), 0.0f)) /
                      n;
            expected -= 0.5 * mean;
          }
          EXPECT_NEAR(after[i], expected, 1e-6 * std::max(1.0, std::abs(expected)))
              << "stage " << stage << ", " << parameters[p].name() << "[" << i << "]";
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Sizes, testing::Values(1, 2, 3, 4, 5, 8));

TEST(Buckets, FitAParameterAsLongOneLongerAndOneShorter) {
  // The longest unit sets the bucket's length; each is reduced exactly once through the same
  // bucket.
  for (const std::int64_t length : {127, 128, 129}) {
    with_ranks(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = 2, .buckets = 1},
                                  .rule = SGD{.learning_rate = 1.0},
                                  .model = {{"a", {{"a.w", {128}}}}, {"b", {{"b.w", {length}}}}},
                                  .gradient = gradient});
      const Parameter b = trainer.optimizer().parameter("b.w");
      const std::vector<float> before = trainer.optimizer().read(b, "parameter");
      trainer.step();
      const std::vector<float> after = trainer.optimizer().read(b, "parameter");
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_EQ(after[i],
                  before[i] - (gradient(0, 0, 0, 1, static_cast<std::int64_t>(i), 0) + 0.5f))
            << length << " elements, element " << i;
    });
  }
}

}  // namespace
}  // namespace ration::test
