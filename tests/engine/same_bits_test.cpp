// What must not change a bit: overlap, late reduces, tiles, how long a parameter is.

#include "comm/decorators/decorators.hpp"
#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

constexpr int kRanks = 3;

Snapshot train_late(const Setting& setting, TinyTrainer::Options options,
                    const std::function<Fault(int rank, Sequence, const Operation&)>& fault) {
  PerRank<Snapshot> snapshots(kRanks);
  const auto communicators = make_threads(kRanks, setting.threads);
  run_ranks(kRanks, [&](int rank) {
    const ProcessGroup group(make_faulty(
        communicators[static_cast<std::size_t>(rank)],
        [&, rank](Sequence number, const Operation& o) { return fault(rank, number, o); }));
    try {
      TinyTrainer trainer(group, options);
      for (int i = 0; i < 2; ++i) trainer.step();
      snapshots[group] = snapshot_of(trainer.optimizer());
    } catch (const std::exception& error) {
      group.abort(error.what());
      throw;
    }
  });
  EXPECT_TRUE(snapshots.alike());
  return snapshots.first();
}

TEST(SameBits, WithOverlapOrWithoutAndWithLateReducesAndGathers) {
  for (const int micro_steps : {1, 2}) {
    std::map<Accumulation, Snapshot> expected;
    at_every_stage(
        [&](const Setting& setting) {
          for (const bool overlap : {true, false}) {
            for (const auto late : {OperationKind::barrier, OperationKind::reduce_scatter,
                                    OperationKind::all_gather}) {
              TinyTrainer::Options options = options_of(setting, micro_steps);
              options.config.overlap = overlap;
              options.clip = 0.5;
              const Snapshot snapshot =
                  train_late(setting, options, [&](int rank, Sequence number, const Operation& o) {
                    // Another rank each time; never all at once.
                    const bool now = o.kind == late && o.count < 128 &&
                                     number % kRanks == static_cast<Sequence>(rank);
                    return Fault{.delay = std::chrono::milliseconds(now ? 1 : 0)};
                  });
              const auto [found, is_new] = expected.emplace(setting.accumulation, snapshot);
              EXPECT_EQ(snapshot, found->second)
                  << (overlap ? "overlap, late " : "no overlap, late ") << name_of(late);
            }
          }
        },
        micro_steps);
  }
}

TEST(SameBits, ForEveryTile) {
  for (const std::pair<Precision, Rule>& kept :
       {std::pair<Precision, Rule>{Precision::fp32(), AdamW{.learning_rate = 0.01}},
        {{.parameter = DType::bf16, .master = Master::split, .moments = DType::bf16},
         AdamW{.learning_rate = 0.01}},
        {{.parameter = DType::f16, .moments = DType::bf16}, Lion{.learning_rate = 0.01}}}) {
    std::optional<Snapshot> expected;
    at_every_stage([&](const Setting& setting) {
      for (const std::size_t tile : {0, 1, 1024, 4096}) {
        TinyTrainer::Options options = options_of(setting);
        options.config.precision = kept.first;
        options.config.tile_elements = tile;
        options.rule = kept.second;
        options.model = {{"small", {{"a", {33}}, {"b", {1030}}}}, {"large", {{"w", {97, 101}}}}};
        with_ranks(
            2,
            [&](const ProcessGroup& group) {
              TinyTrainer trainer(group, options);
              for (int i = 0; i < 2; ++i) trainer.step();
              const Snapshot snapshot = snapshot_of(trainer.optimizer());
              if (group.rank() != 0) return;
              if (!expected) expected = snapshot;
              EXPECT_EQ(snapshot, *expected) << "tiles of " << tile;
            },
            setting.threads);
      }
    });
  }
}

TEST(LongParameters, AsLongAsTheBucketAreReducedOnce) {
  // The bucket is as long as the longest unit, padded to shards of 64: 192 elements a shard.
  at_every_stage(
      [](const Setting& setting) {
        TinyTrainer::Options options = options_of(setting, 2);
        options.rule = SGD{.learning_rate = 0.5};
        options.model = {{"as long", {{"a", {576}}}},
                         {"one shorter", {{"b", {575}}}},
                         {"one longer than a shard", {{"c", {193}}}},
                         {"as long in two", {{"d", {320}}, {"e", {256}}}}};
        options.gradient = [](int step, int micro, int rank, int p, std::int64_t i, float) {
          return item_gradient(step, micro * kRanks + rank, p, i);
        };
        with_ranks(
            kRanks,
            [&](const ProcessGroup& group) {
              TinyTrainer trainer(group, options);
              Oracle oracle = Oracle::of(trainer.optimizer());
              for (int step = 0; step < 2; ++step) {
                trainer.step();
                oracle.step(0.5, [&](int p, std::int64_t i) {
                  double sum = 0;
                  for (int item = 0; item < 2 * kRanks; ++item)
                    sum += item_gradient(step, item, p, i);
                  return sum / (2 * kRanks);
                });
              }
              EXPECT_EQ(first_difference(values_of(trainer.optimizer()), oracle.weights()), "");
            },
            setting.threads);
      },
      2);
}

}  // namespace
}  // namespace ration::test
