// Sums of squares: accurate, and added in one order only.

#include <gtest/gtest.h>

#include "device/host/arithmetic.hpp"
#include "random_values.hpp"

namespace ration {
namespace {

using testing::as_type;
using testing::element;
using testing::kTypes;
using testing::ordinary;

// The definition, literally: element i to accumulator i mod 16, then halves onto halves.
double block_by_definition(const void* values, DType type, std::size_t count) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const double value = element(values, type, i);
    lanes[i % 16] += value * value;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

TEST(NormBlock, FollowsItsDefinitionToTheBitAtEveryLevel) {
  for (const DType type : kTypes) {
    const std::vector<std::byte> values = as_type(ordinary(kNormBlock + 3, 4), type);
    for (const std::size_t offset : {0u, 1u, 3u}) {
      for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 100u, 1023u, 1024u}) {
        const void* start = values.data() + offset * size_of(type);
        for (const Arithmetic* level : arithmetic_levels()) {
          ASSERT_EQ(level->norm_block(start, type, count), block_by_definition(start, type, count))
              << level->name << " " << name_of(type) << " " << count;
        }
      }
    }
  }
}

TEST(NormBlock, NeitherFlushesTinyGradientsNorOverflowsOnLargeOnes) {
  const float values[] = {1e-30f, 1e30f, -1e30f};
  EXPECT_NEAR(arithmetic().norm_block(values, DType::f32, 3), 2e60, 1e54);
  EXPECT_NEAR(arithmetic().norm_block(values, DType::f32, 1), 1e-60, 1e-66);
}

TEST(NormTree, EqualsAFloat64Oracle) {
  const std::vector<float> values = ordinary(100'003, 8);
  long double oracle = 0;
  for (const float value : values) oracle += static_cast<long double>(value) * value;
  NormTree tree;
  tree.add(values.data(), DType::f32, values.size());
  EXPECT_NEAR(tree.sum() / static_cast<double>(oracle), 1.0, 1e-14);
}

TEST(NormTree, DoesNotDependOnThePiecesItIsFedIn) {
  const std::vector<float> values = ordinary(20 * kNormBlock + 77, 9);
  NormTree whole;
  whole.add(values.data(), DType::f32, values.size());
  for (const std::size_t blocks : {1u, 2u, 3u, 7u, 16u}) {
    NormTree pieces;
    for (std::size_t begin = 0; begin < values.size(); begin += blocks * kNormBlock) {
      const std::size_t count = std::min(blocks * kNormBlock, values.size() - begin);
      pieces.add(values.data() + begin, DType::f32, count);
    }
    EXPECT_EQ(pieces.sum(), whole.sum()) << blocks;
  }
}

TEST(NormTree, IsABinaryTree) {
  // Numbers for which ((1 + e) + (e + e)) and (((1 + e) + e) + e) differ.
  const double e = 0x1p-53;
  NormTree tree;
  for (const double sum : {1.0, e, e, e}) tree.add_block(sum);
  EXPECT_EQ(tree.sum(), (1.0 + e) + (e + e));
  EXPECT_NE(tree.sum(), ((1.0 + e) + e) + e);
  tree.add_block(e);
  tree.add_block(e);
  tree.add_block(e);  // left over: trees of 4, 2 and 1 blocks
  EXPECT_EQ(tree.sum(), ((1.0 + e) + (e + e)) + ((e + e) + e));
  tree.clear();
  EXPECT_EQ(tree.sum(), 0.0);
}

}  // namespace
}  // namespace ration
