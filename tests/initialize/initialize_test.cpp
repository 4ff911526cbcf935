// Initial values: distributions, and functions of (seed, name, element) alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <ration/error.hpp>
#include <ration/initialize.hpp>
#include <vector>

#include "core/inverse_normal.hpp"
#include "core/philox.hpp"

namespace ration {
namespace {

std::vector<float> fill(const Initializer& initializer, std::string_view name, std::size_t count,
                        std::uint64_t first = 0) {
  std::vector<float> values(count, NAN);
  const std::int64_t shape[] = {static_cast<std::int64_t>(first + count)};
  initializer({.name = name, .shape = shape, .first_element = first, .values = values});
  return values;
}

TEST(Philox, GivesTheReferenceValues) {
  // Known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(PortableLog, IsTheLogarithmToTheLastBits) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(portable_log(x), std::log(x), 4e-16 * std::fabs(std::log(x)) + 1e-16) << x;
  }
  for (double x = 0.9; x < 1.1; x += 0.00037) {
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-16 + 4e-16 * std::fabs(std::log(x))) << x;
  }
}

TEST(InverseNormal, InvertsTheDistributionFunction) {
  for (double x = -8.0; x < 8.0; x += 0.003) {
    if (std::fabs(x) < 1e-6) continue;
    const double p = 0.5 * std::erfc(-x / std::sqrt(2.0));
    if (p > 0.999) continue;  // where 1 - p has lost its digits
    EXPECT_NEAR(inverse_normal(p) / x, 1.0, 2e-9) << x;
  }
}

TEST(Normal, HasTheMomentsOfANormalDistribution) {
  const std::size_t n = 400'000;
  const std::vector<float> values = fill(normal(0.02, 1), "w", n);
  double mean = 0, square = 0, fourth = 0;
  std::size_t within = 0;
  for (const float value : values) {
    const double x = double{value} / 0.02;
    mean += x;
    square += x * x;
    fourth += x * x * x * x;
    within += std::fabs(x) < 1.0 ? 1 : 0;
  }
  const auto count = static_cast<double>(n);
  EXPECT_NEAR(mean / count, 0.0, 5 / std::sqrt(count));
  EXPECT_NEAR(square / count, 1.0, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count, 3.0, 5 * std::sqrt(96 / count));
  EXPECT_NEAR(static_cast<double>(within) / count, 0.682689, 0.004);
}

TEST(Uniform, FillsItsIntervalWithoutTheUpperBound) {
  const std::vector<float> values = fill(uniform(0.3, 1), "w", 400'000);
  double mean = 0, square = 0;
  for (const float value : values) {
    ASSERT_GE(value, -0.3f);
    ASSERT_LT(value, 0.3f);
    mean += value;
    square += double{value} * value;
  }
  EXPECT_NEAR(mean / 400'000, 0.0, 0.002);
  EXPECT_NEAR(square / 400'000, 0.03, 0.0003);
}

TEST(Initializers, DependOnTheElementNotOnThePieces) {
  for (const Initializer& initializer : {normal(1.0, 7), uniform(1.0, 7)}) {
    const std::vector<float> whole = fill(initializer, "h.0.w", 1001);
    for (const std::size_t cut : {1u, 2u, 499u, 1000u}) {
      std::vector<float> pieces = fill(initializer, "h.0.w", cut);
      const std::vector<float> rest = fill(initializer, "h.0.w", 1001 - cut, cut);
      pieces.insert(pieces.end(), rest.begin(), rest.end());
      EXPECT_EQ(pieces, whole) << cut;
    }
  }
}

TEST(Initializers, DifferByNameSeedAndElementsBeyond32Bits) {
  const std::vector<float> values = fill(normal(1.0, 7), "a", 100);
  EXPECT_NE(fill(normal(1.0, 7), "b", 100), values);
  EXPECT_NE(fill(normal(1.0, 8), "a", 100), values);
  EXPECT_NE(fill(normal(1.0, 7 + (1ull << 32)), "a", 100), values);
  EXPECT_NE(fill(normal(1.0, 7), "a", 100, 1ull << 33), values);
  EXPECT_EQ(fill(normal(1.0, 7), "a", 100), values);
}

TEST(Initializers, GiveTheSameBitsOnEveryMachine) {
  const std::vector<float> values = fill(normal(0.02, 1234), "wte.weight", 100'000);
  EXPECT_EQ(XXH3_64bits(values.data(), values.size() * sizeof(float)), 0x1ef32271437f528cu);
  const std::vector<float> uniforms = fill(uniform(0.1, 1234), "wte.weight", 100'000);
  EXPECT_EQ(XXH3_64bits(uniforms.data(), uniforms.size() * sizeof(float)), 0xd07b8ca6062a7a3eu);
}

TEST(Constant, FillsEveryElement) {
  EXPECT_THAT(fill(constant(1.5f), "w", 5), testing::Each(1.5f));
}

TEST(From, CopiesThePieceAsked) {
  const std::vector<float> tensor = {0, 1, 2, 3, 4, 5};
  const Initializer initializer = from([&](std::string_view name) {
    EXPECT_EQ(name, "w");
    return std::span<const float>(tensor);
  });
  std::vector<float> values(3);
  const std::int64_t shape[] = {2, 3};
  initializer({.name = "w", .shape = shape, .first_element = 2, .values = values});
  EXPECT_EQ(values, (std::vector<float>{2, 3, 4}));
}

TEST(From, RefusesATensorOfAnotherSizeNamingBoth) {
  const std::vector<float> tensor(5);
  const Initializer initializer = from([&](std::string_view) { return std::span(tensor); });
  std::vector<float> values(2);
  const std::int64_t shape[] = {2, 3};
  try {
    initializer({.name = "h.0.w", .shape = shape, .first_element = 0, .values = values});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("\"h.0.w\""));
    EXPECT_THAT(error.what(), testing::HasSubstr("5 elements, expected 6"));
  }
}

TEST(Initializers, RefuseSpreadsThatMakeNoSense) {
  EXPECT_THROW(normal(-1.0, 0), InvalidArgument);
  EXPECT_THROW(normal(NAN, 0), InvalidArgument);
  EXPECT_THROW(uniform(INFINITY, 0), InvalidArgument);
  EXPECT_THROW(from(nullptr), InvalidArgument);
}

}  // namespace
}  // namespace ration
