// Shards that their owners publish and everyone gathers.

#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "backends.hpp"
#include "elements.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

class Shards : public OnEveryBackend {};
class ShardsOfTwo : public OnEveryBackend {};

TEST_P(Shards, GathersSeeEachEpochWhole) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    const auto stream = c.make_stream("gathers");
    constexpr std::size_t kCount = 1000;
    Buffer shard(DType::f32, kCount);
    Buffer whole(DType::f32, kCount * z(ranks()));
    const auto shards = c.share(shard.data(), shard.bytes.size());
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (std::size_t i = 0; i < kCount; ++i) {
        shard.set(i, static_cast<float>(epoch * 100 + rank));
      }
      shards->publish();
      // One-sided, each rank gathers as often as it likes; otherwise all alike.
      const int gathers = shards->one_sided() ? 1 + (epoch + rank) % 3 : 2;
      for (int g = 0; g < gathers; ++g) {
        c.submit(*stream, {.kind = OperationKind::all_gather,
                           .count = kCount,
                           .recv = whole.data(),
                           .shards = shards.get(),
                           .tag = "shards"});
        stream->synchronize();
        for (std::size_t i = 0; i < whole.count; ++i) {
          ASSERT_EQ(whole.get<float>(i),
                    static_cast<float>(epoch * 100 + static_cast<int>(i / kCount)));
        }
      }
      c.submit(*stream, {.kind = OperationKind::barrier});  // as the step header: all have gathered
      stream->synchronize();
    }
  });
}

TEST_P(Shards, InPlaceGatherKeepsTheOwnShard) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    const auto stream = c.make_stream("gathers");
    constexpr std::size_t kCount = 65;
    Buffer whole(DType::bf16, kCount * z(ranks()));
    const Buffer own = numbers(DType::bf16, kCount, rank);
    std::memcpy(whole.at(z(rank) * kCount), own.data(), own.bytes.size());
    const auto shards = c.share(whole.at(z(rank) * kCount), own.bytes.size());
    shards->publish();
    c.submit(*stream, {.kind = OperationKind::all_gather,
                       .count = kCount,
                       .type = DType::bf16,
                       .recv = whole.data(),
                       .shards = shards.get()});
    stream->synchronize();
    for (int r = 0; r < ranks(); ++r) {
      const Buffer expected = numbers(DType::bf16, kCount, r);
      EXPECT_EQ(std::memcmp(whole.at(z(r) * kCount), expected.data(), expected.bytes.size()), 0);
    }
    c.submit(*stream, {.kind = OperationKind::barrier});
    stream->synchronize();
    EXPECT_EQ(c.sent_bytes(), kCount * 2 * z(ranks() - 1));
  });
}

TEST_P(ShardsOfTwo, SizesThatDifferAreAnErrorOnAllRanks) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    const std::vector<std::byte> shard(64);
    try {
      communicators[z(rank)]->share(shard.data(), rank == 1 ? 32 : 64);
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const InvalidArgument& e) {
      EXPECT_STREQ(e.what(), "shared shards are of one size: rank 0 has 64 bytes, rank 1 has 32");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, Shards, testing::ValuesIn(cases(backends())), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, ShardsOfTwo, testing::ValuesIn(cases(backends(), 2)), case_name);

}  // namespace
}  // namespace ration
