// The sampler against torch.utils.data.DistributedSampler (values of PyTorch 2.15).

#include <gtest/gtest.h>

#include <algorithm>
#include <ration/error.hpp>
#include <ration/sampler.hpp>
#include <vector>

namespace ration {
namespace {

using Indices = std::vector<std::int64_t>;

// FNV-1a over indices instead of bytes, for orders too long to print here.
std::uint64_t hash(const Indices& indices, std::uint64_t state = 0xcbf29ce484222325u) {
  for (const std::int64_t index : indices) {
    state = (state ^ static_cast<std::uint64_t>(index)) * 0x100000001b3u;
  }
  return state;
}

struct Golden {
  std::int64_t size;
  int world;
  std::uint64_t seed;
  std::uint64_t epoch;
  bool shuffle;
  bool drop_last;
  std::int64_t items;       // of each rank
  std::uint64_t all_ranks;  // hash of the ranks' indices, one rank after the other
};

constexpr Golden kGolden[] = {
    {10, 1, 0u, 0, true, false, 10, 0x5fb755c895d353d6u},
    {10, 3, 0u, 0, true, false, 4, 0xb42459e8cc12c15du},
    {10, 3, 0u, 0, true, true, 3, 0xb2f8267ef73f4500u},
    {10, 3, 7u, 2, false, false, 4, 0x285cc35656e57f11u},
    {10, 3, 7u, 2, false, true, 3, 0x59a8a59bb8e2de6fu},
    {2, 5, 1u, 0, true, false, 1, 0xe0b6e6aeacc47be4u},
    {2, 5, 1u, 0, true, true, 0, 0xcbf29ce484222325u},
    {1, 8, 3u, 1, true, false, 1, 0xa8c7f832281a39c5u},
    {0, 2, 0u, 0, true, false, 0, 0xcbf29ce484222325u},
    {1000, 4, 42u, 0, true, false, 250, 0x0937b3cd4d3821d3u},
    {1000, 4, 42u, 9, true, false, 250, 0x04b6a6da345ab24fu},
    {1001, 8, 123456789u, 3, true, true, 125, 0x0f2ef1c8f3d881c8u},
    {1001, 8, 123456789u, 3, true, false, 126, 0x1527328ecd551af6u},
    {65537, 7, 4294967295u, 0, true, false, 9363, 0x54eed5e7dee1886du},
    {65537, 7, 4294967295u, 1, true, false, 9363, 0x51bc7e5a8c41b32eu},
    {100, 2, 1099511627781u, 0, true, false, 50, 0xd7362f271529d317u},
    {12, 4, 5u, 6, true, true, 3, 0x8ca6163b1dfca6f5u},
};

TEST(DistributedSampler, GivesPyTorchsIndices) {
  for (const Golden& golden : kGolden) {
    std::uint64_t state = hash({});
    for (int rank = 0; rank < golden.world; ++rank) {
      DistributedSampler sampler(
          golden.size, rank, golden.world,
          {.shuffle = golden.shuffle, .seed = golden.seed, .drop_last = golden.drop_last});
      sampler.set_epoch(golden.epoch);
      const Indices indices = sampler.indices();
      EXPECT_EQ(sampler.size(), golden.items);
      EXPECT_EQ(static_cast<std::int64_t>(indices.size()), golden.items);
      state = hash(indices, state);
    }
    EXPECT_EQ(state, golden.all_ranks) << golden.size << " items, " << golden.world << " ranks";
  }
}

TEST(DistributedSampler, GivesPyTorchsIndicesWrittenOut) {
  EXPECT_EQ(DistributedSampler(10, 0, 1).indices(), (Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(DistributedSampler(10, 1, 3).indices(), (Indices{1, 3, 8, 4}));
  DistributedSampler dropping(10, 2, 3, {.seed = 5, .drop_last = true});
  dropping.set_epoch(1);
  EXPECT_EQ(dropping.indices(), (Indices{5, 3, 4}));
}

TEST(DistributedSampler, CoversTheDataSetOnceWhenItDivides) {
  Indices all;
  for (int rank = 0; rank < 6; ++rank) {
    const Indices own = DistributedSampler(600, rank, 6, {.seed = 3}).indices();
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::sort(all);
  ASSERT_EQ(all.size(), 600u);
  for (std::int64_t i = 0; i < 600; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
}

TEST(DistributedSampler, RefusesRanksOutsideTheWorld) {
  EXPECT_THROW(DistributedSampler(10, -1, 2), InvalidArgument);
  EXPECT_THROW(DistributedSampler(10, 2, 2), InvalidArgument);
  EXPECT_THROW(DistributedSampler(10, 0, 0), InvalidArgument);
  EXPECT_THROW(DistributedSampler(-1, 0, 1), InvalidArgument);
}

// PyTorch shuffles in another way from 2^32 / 20 items on: 1.7 GB and some seconds, so only
// --gtest_also_run_disabled_tests looks.
TEST(DistributedSampler, DISABLED_GivesPyTorchsIndicesOfHugeDataSets) {
  const Indices order =
      DistributedSampler((std::int64_t{1} << 32) / 20 + 100, 0, 1, {.seed = 3}).indices();
  EXPECT_EQ(
      Indices(order.begin(), order.begin() + 8),
      (Indices{50815193, 116864026, 18612126, 8421410, 157113196, 174023950, 859818, 136147441}));
}

}  // namespace
}  // namespace ration
