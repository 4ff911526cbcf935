// What is kept in fewer bits: the split master, half-up weights, bf16 moments.

#include <gtest/gtest.h>

#include "model.hpp"

namespace ration {
namespace {

using testing::float_of;
using testing::Model;
using testing::Types;
using update::WeightKind;

constexpr Types kSplit = {.weight = DType::bf16, .kind = WeightKind::split};
constexpr Types kFp32 = {.weight = DType::bf16, .kind = WeightKind::fp32};

std::uint32_t through(const Types& types, std::uint32_t bits) {
  Model model(SGD{}, types, {float_of(bits)});
  return std::bit_cast<std::uint32_t>(model.weights()[0]);
}

std::uint16_t model_bits(const Types& types, std::uint32_t bits) {
  Model model(SGD{}, types, {float_of(bits)});
  return reinterpret_cast<const std::uint16_t*>(model.weight.data())[0];
}

TEST(SplitMaster, DecodesTheTiesThatRoundToEvenWouldLose) {
  for (const std::uint32_t bits : {0x00008000u, 0x3f808000u, 0x80008000u, 0xbf808000u}) {
    EXPECT_EQ(through(kSplit, bits), bits);
    EXPECT_EQ(model_bits(kSplit, bits), (bits + 0x8000u) >> 16);
  }
}

// All patterns in an optimised build, 1 in 31 where sanitizers or -O0 make it slow.
TEST(SplitMaster, DecodesEveryPatternExactly) {
#if defined(NDEBUG) && !defined(RATION_SANITIZED)
  constexpr std::uint64_t kStride = 1;
#else
  constexpr std::uint64_t kStride = 31;
#endif
  constexpr std::size_t kCount = 8192;
  std::vector<std::uint32_t> bits(kCount), decoded(kCount);
  std::vector<std::uint16_t> weight(kCount), residue(kCount);
  update::Run run;
  run.count = kCount;
  run.weight = weight.data();
  run.weight_type = DType::bf16;
  run.weight_kind = WeightKind::split;
  run.master = residue.data();
  for (std::uint64_t base = 0; base < 1ull << 32; base += kCount * kStride) {
    for (std::size_t i = 0; i < kCount; ++i) {
      bits[i] = static_cast<std::uint32_t>(base + i * kStride);
    }
    update::store_weights(run, reinterpret_cast<const float*>(bits.data()));
    update::load_weights(run, reinterpret_cast<float*>(decoded.data()));
    ASSERT_EQ(bits, decoded) << "from pattern " << base;
  }
}

TEST(ModelWeights, AreTheSameWithEveryMaster) {
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 1'000'003) {
    const auto pattern = static_cast<std::uint32_t>(bits);
    const float value = float_of(pattern);
    if (std::isnan(value)) continue;
    const auto half_up = static_cast<std::uint16_t>((pattern + 0x8000u) >> 16);
    ASSERT_EQ(model_bits(kSplit, pattern), half_up) << pattern;
    ASSERT_EQ(model_bits(kFp32, pattern), half_up) << pattern;
  }
}

TEST(ModelWeights, KeepNaNsBesideAnFp32Master) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7f807fffu, 0x7fc00000u, 0x7fff8000u, 0x7fffffffu,
                                   0xff800001u, 0xffc00000u, 0xffffffffu}) {
    Model model(SGD{}, kFp32, {float_of(bits)});
    EXPECT_TRUE(std::isnan(model.model_weight(0))) << bits;
    EXPECT_EQ(through(kFp32, bits), bits);
  }
  // The NaN that x86 produces stays one with the split master too.
  Model split(SGD{}, kSplit, {float_of(0xffc00000u)});
  EXPECT_TRUE(std::isnan(split.model_weight(0)));
}

TEST(ModelWeights, KeepInfinities) {
  EXPECT_EQ(model_bits(kFp32, 0x7f800000u), 0x7f80u);
  EXPECT_EQ(model_bits(kSplit, 0xff800000u), 0xff80u);
}

TEST(SplitMaster, GivesTheWeightsOfAnFp32Master) {
  const Rule rule = AdamW{.learning_rate = 1e-3};
  const std::size_t count = 3001;
  const std::vector<float> start = testing::random_floats(count, 1, 1.0f);
  Model split(rule, {DType::bf16, DType::bf16, WeightKind::split, DType::bf16}, start);
  Model fp32(rule, {DType::bf16, DType::bf16, WeightKind::fp32, DType::bf16}, start);
  for (std::int64_t step = 1; step <= 20; ++step) {
    const auto gradients = testing::random_floats(count, static_cast<std::uint32_t>(step), 1.0f);
    split.set_gradient(gradients);
    fp32.set_gradient(gradients);
    update::apply(rule, split.run(0, count, step));
    update::apply(rule, fp32.run(0, count, step));
  }
  EXPECT_EQ(split.weights(), fp32.weights());
  EXPECT_EQ(split.weight, fp32.weight);
}

// In bf16 alone 0.999 v rounds back to v, and the moment would stand still for ever.
TEST(Bf16Moments, StillDecayAtBeta2Of0999) {
  const Rule rule = AdamW{.beta2 = 0.999};
  const std::size_t count = 4096;
  Model model(rule, {DType::bf16, DType::bf16, WeightKind::split, DType::bf16},
              std::vector<float>(count, 1.0f));
  for (std::size_t i = 0; i < count; ++i) {
    Model::set(model.state[1], DType::bf16, i, 1.0f);
  }
  model.set_gradient(std::vector<float>(count, 0.0f));
  for (std::int64_t step = 1; step <= 1000; ++step) update::apply(rule, model.run(0, count, step));
  double mean = 0;
  for (std::size_t i = 0; i < count; ++i) mean += model.state_at(1, i);
  mean /= static_cast<double>(count);
  EXPECT_NEAR(mean / std::pow(0.999, 1000), 1.0, 0.02);
}

TEST(Bf16Moments, AreRightOnAverage) {
  // One step from 0: the stored values straddle the exact one, and average to it.
  const Rule rule = AdamW{};
  const std::size_t count = 200'000;
  Model model(rule, {.state = DType::bf16}, std::vector<float>(count, 1.0f));
  model.set_gradient(std::vector<float>(count, 0.777f));
  update::apply(rule, model.run(0, count, 1));
  for (std::size_t s = 0; s < 2; ++s) {
    const float exact = s == 0 ? (1.0f - 0.9f) * 0.777f : 0.001f * 0.777f * 0.777f;
    double mean = 0;
    std::size_t above = 0;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(model.state_at(s, i), exact, 0x1p-7 * exact);
      mean += model.state_at(s, i);
      above += model.state_at(s, i) > exact ? 1 : 0;
    }
    EXPECT_NEAR(mean / static_cast<double>(count) / double{exact}, 1.0, 3e-5) << s;
    EXPECT_GT(above, 0u);
    EXPECT_LT(above, count);
  }
}

TEST(Bf16Moments, RoundByElementStepAndKeyAndTheTwoIndependently) {
  const Rule rule = AdamW{};
  const std::size_t count = 10'000;
  const auto moments = [&](std::int64_t step, std::uint64_t key) {
    Model model(rule, {.state = DType::bf16}, std::vector<float>(count, 1.0f));
    model.set_gradient(std::vector<float>(count, 0.777f));
    update::Run run = model.run(0, count, step);
    run.key = key;
    update::apply(rule, run);
    return model.state;
  };
  const auto one = moments(1, 1);
  EXPECT_EQ(one, moments(1, 1));
  EXPECT_NE(one[0], moments(2, 1)[0]);
  EXPECT_NE(one[0], moments(1, 2)[0]);
  // Up or down: the two moments' choices agree as often as independent ones do.
  const auto high = [](const std::vector<std::byte>& bytes, std::size_t i) {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(bytes.data());
    std::uint16_t least = bits[0];
    for (std::size_t j = 0; j < 100; ++j) least = std::min(least, bits[j]);
    return bits[i] != least;
  };
  double first = 0, second = 0, both = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool a = high(one[0], i), b = high(one[1], i);
    first += a;
    second += b;
    both += a && b;
  }
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(both / n, first / n * second / n, 0.02);
}

}  // namespace
}  // namespace ration
