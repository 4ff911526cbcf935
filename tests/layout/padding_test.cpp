// Padding is in no norm, no digest and no other unit.

#include <xxhash.h>

#include "support/throws.hpp"

namespace ration::test {
namespace {

const std::vector<TinyUnit> kSmallBesideLarge = {
    {"small", {{"s.w", {3}}, {"s.b", {1}}, {"s.unused", {5}}}},
    {"large", {{"l.w", {40, 40}}}},
};

// Backwards the large unit comes first and leaves its values in the only bucket.
TEST(Padding, ThatTheFormerUnitFilledIsNotInTheNorm) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      with_ranks(3, [&](const ProcessGroup& group) {
        TinyTrainer trainer(
            group, {.config = {.stage = stage, .precision = {.parameter = type}, .buckets = 1},
                    .rule = SGD{.learning_rate = 0.0},
                    .model = kSmallBesideLarge,
                    .gradient = [](int, int, int, int parameter, std::int64_t, float) {
                      return parameter == 3 ? 1024.0f : 0.5f;
                    }});
        const double expected = std::sqrt(1600.0 * 1024 * 1024 + 9 * 0.25);
        for (int step = 0; step < 3; ++step)
          EXPECT_NEAR(trainer.step().gradient_norm, expected, 1e-9 * expected)
              << "stage " << stage << ", " << name_of(type);
      });
    }
  }
}

TEST(Padding, AParameterNobodyAskedForIsZeroInAReusedBucket) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = stage, .buckets = 1},
                                  .rule = SGD{.learning_rate = 0.0},
                                  .model = kSmallBesideLarge});
      ShardedOptimizer& optimizer = trainer.optimizer();
      const std::vector<Unit> units = optimizer.units();
      const MicroStep micro = optimizer.micro_step();
      micro.begin_backward();
      std::fill_n(units[1].gradient<float>(units[1]["l.w"]), 1600, 1024.0f);
      units[1].gradients_ready();
      std::fill_n(units[0].gradient<float>(units[0]["s.w"]), 3, 2.0f);
      units[0].gradients_ready();
      EXPECT_DOUBLE_EQ(optimizer.step().gradient_norm, std::sqrt(1600.0 * 1024 * 1024 + 3 * 4.0))
          << "stage " << stage;
    });
  }
}

// A trainer with vector stores writes a little beyond its parameter.
TEST(Padding, ThatTheTrainerWroteIsNotInTheNorm) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group,
                          {.config = {.stage = stage}, .model = {{"u", {{"a", {3}}, {"b", {3}}}}}});
      ShardedOptimizer& optimizer = trainer.optimizer();
      const Unit unit = optimizer.units()[0];
      const MicroStep micro = optimizer.micro_step();
      micro.begin_backward();
      std::fill_n(unit.gradient<float>(unit["a"]), 64, 3.0f);
      std::fill_n(unit.gradient<float>(unit["b"]), 3, 4.0f);
      unit.gradients_ready();
      EXPECT_DOUBLE_EQ(optimizer.step().gradient_norm, std::sqrt(3 * 9.0 + 3 * 16.0))
          << "stage " << stage;
    });
  }
}

TEST(Padding, IsNotInTheDigest) {
  const auto digest = [](int ranks, int stage) {
    return train(ranks, 0, {.config = {.stage = stage}});
  };
  const std::uint64_t expected = digest(1, 0);
  for (const int ranks : {2, 3, 7}) {
    for (const int stage : {0, 3})
      EXPECT_EQ(digest(ranks, stage), expected) << ranks << " ranks, stage " << stage;
  }
}

TEST(Padding, TheDigestIsXxh3OfTheParametersBytesInRegistrationOrder) {
  with_ranks(3, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = 3}});
    trainer.step();
    ShardedOptimizer& optimizer = trainer.optimizer();
    std::vector<std::byte> bytes;
    const Whole whole = optimizer.gather_all();
    for (const Parameter& p : optimizer.parameters()) {
      const auto part = whole.bytes(p);
      EXPECT_EQ(part.size(), static_cast<std::size_t>(p.count()) * 4);
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    EXPECT_EQ(optimizer.digest(), XXH3_64bits(bytes.data(), bytes.size()));
  });
}

}  // namespace
}  // namespace ration::test
