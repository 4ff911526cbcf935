// The order of the data.

#include "batches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace chargpt {
namespace {

using testing::ElementsAre;

std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), std::uint8_t{0});
  return tokens;
}

TEST(Batches, ItemsAreWholeSequencesWithATargetForEachInput) {
  EXPECT_EQ(items_in(0, 4), 0);
  EXPECT_EQ(items_in(4, 4), 0);
  EXPECT_EQ(items_in(5, 4), 1);
  EXPECT_EQ(items_in(8, 4), 1);
  EXPECT_EQ(items_in(9, 4), 2);
}

TEST(Batches, TargetsAreTheInputsShiftedByOne) {
  const auto tokens = counting(9);
  Batches batches(tokens, 2, 2, ration::DistributedSampler(4, 0, 1, {.shuffle = false}));
  batches.next();
  EXPECT_THAT(batches.inputs(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batches.targets(), ElementsAre(1, 2, 3, 4));
  batches.next();
  EXPECT_THAT(batches.inputs(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(batches.targets(), ElementsAre(5, 6, 7, 8));
}

TEST(Batches, EpochsFollowOneAnotherEachInTheSamplersOrder) {
  const auto tokens = counting(6);
  ration::DistributedSampler sampler(5, 0, 1, {.shuffle = true, .seed = 3});
  std::vector<int> expected, seen;
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    sampler.set_epoch(epoch);
    for (const auto item : sampler.indices()) expected.push_back(static_cast<int>(item));
  }
  // Micro-batches of two: one of them spans the border between two epochs of five.
  Batches batches(tokens, 1, 2, ration::DistributedSampler(5, 0, 1, {.shuffle = true, .seed = 3}));
  while (seen.size() < expected.size()) {
    batches.next();
    seen.insert(seen.end(), batches.inputs().begin(), batches.inputs().end());
  }
  EXPECT_EQ(seen, expected);
}

TEST(Batches, RanksShareAnEpoch) {
  const auto tokens = counting(9);
  std::multiset<int> seen;
  for (int rank = 0; rank < 4; ++rank) {
    Batches batches(tokens, 1, 2, ration::DistributedSampler(8, rank, 4, {.seed = 1}));
    batches.next();
    seen.insert(batches.inputs().begin(), batches.inputs().end());
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace chargpt
