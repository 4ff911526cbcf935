// Stage 3 over memory the trainer is asked for.

#include <cstring>
#include <set>

#include "support/throws.hpp"

namespace ration::test {
namespace {

/// Blocks handed out, each poisoned before and after.
class Blocks {
 public:
  UnitOptions options() {
    return {.acquire =
                [this](std::size_t bytes) {
                  sizes.push_back(bytes);
                  void* block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
                  std::memset(block, 0xff, bytes);
                  live.insert(block);
                  ++acquired;
                  return block;
                },
            .release =
                [this](void* block) {
                  EXPECT_EQ(live.erase(block), 1u) << "released twice, or never acquired";
                  std::memset(block, 0xff, 64);
                  std::free(block);
                  ++released;
                }};
  }
  std::set<void*> live;
  std::vector<std::size_t> sizes;
  int acquired = 0;
  int released = 0;
};

struct HookedModel {
  HookedModel(const ProcessGroup& group, bool hooked, int prefetch = 1)
      : optimizer(group, {.stage = 3, .prefetch = prefetch}) {
    optimizer.add_group(AdamW{.learning_rate = 0.1});
    for (const char* name : {"a", "b", "c"}) {
      units.push_back(
          optimizer.add_unit(name, {{.name = std::string(name) + ".w", .shape = {17, 9}}},
                             hooked && *name != 'b' ? blocks.options() : UnitOptions{}));
    }
    optimizer.initialize(normal(1.0, 3));
  }

  void step() {
    const MicroStep micro = optimizer.micro_step();
    for (const Unit& unit : units) {
      const Gathered weights = unit.gather();
      EXPECT_LE(blocks.live.size(), 1u);
    }
    EXPECT_TRUE(blocks.live.empty()) << "memory only between gather and release";
    micro.begin_backward();
    for (std::size_t u = units.size(); u-- > 0;) {
      const Parameter p = units[u][units[u].name() + ".w"];
      const Gathered weights = units[u].gather();
      float* g = units[u].gradient<float>(p);
      for (int i = 0; i < 17 * 9; ++i) g[i] += weights.data<float>(p)[i];
      units[u].gradients_ready();
    }
    EXPECT_TRUE(blocks.live.empty());
    optimizer.step();
    EXPECT_EQ(blocks.acquired, blocks.released);
  }

  Blocks blocks;
  ShardedOptimizer optimizer;
  std::vector<Unit> units;
};

class Hooks : public testing::TestWithParam<ThreadsOptions::Mode> {};

TEST_P(Hooks, GiveTheSameBitsAndComeInPairs) {
  std::vector<std::uint64_t> digests;
  for (const bool hooked : {false, true}) {
    with_ranks(3,
               [&](const ProcessGroup& group) {
                 HookedModel model(group, hooked);
                 for (int i = 0; i < 3; ++i) model.step();
                 EXPECT_EQ(model.blocks.acquired, hooked ? 12 : 0)
                     << "two units, two passes, three steps";
                 EXPECT_EQ(model.blocks.released, model.blocks.acquired);
                 for (const std::size_t bytes : model.blocks.sizes) EXPECT_EQ(bytes, 3u * 64 * 4);
                 const std::uint64_t digest = model.optimizer.digest();
                 if (group.rank() == 0) digests.push_back(digest);
               },
               {.mode = GetParam()});
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_P(Hooks, TheDataLiesInTheBlock) {
  with_ranks(2,
             [](const ProcessGroup& group) {
               HookedModel model(group, true);
               const Evaluation evaluation = model.optimizer.evaluation();
               const Gathered weights = model.units[0].gather();
               ASSERT_EQ(model.blocks.live.size(), 1u);
               EXPECT_EQ(weights.data<float>(model.units[0]["a.w"]), *model.blocks.live.begin());
             },
             {.mode = GetParam()});
}

TEST_P(Hooks, AUnitThatARankDidNotUseHoldsNothingAfterThePass) {
  with_ranks(3,
             [](const ProcessGroup& group) {
               HookedModel model(group, true);
               {
                 const Evaluation evaluation = model.optimizer.evaluation();
                 if (group.rank() != 1) {
                   for (const Unit& unit : model.units) const Gathered weights = unit.gather();
                 }
               }
               (void)model.optimizer.digest();
               EXPECT_TRUE(model.blocks.live.empty());
               EXPECT_EQ(model.blocks.acquired, model.blocks.released);
               model.step();
             },
             {.mode = GetParam()});
}

TEST_P(Hooks, NeedNoGatherSlots) {
  with_ranks(2,
             [](const ProcessGroup& group) {
               Blocks blocks;
               ShardedOptimizer optimizer(group, {.stage = 3});
               optimizer.add_group(SGD{});
               optimizer.add_unit("u", {{.name = "w", .shape = {1000}}}, blocks.options());
               for (const InventoryEntry& entry : optimizer.inventory())
                 EXPECT_THAT(entry.name, testing::Not(testing::HasSubstr("gather slot")));
             },
             {.mode = GetParam()});
}

TEST_P(Hooks, ThatGiveNothingAreAnErrorWithTheSize) {
  with_ranks(
      1,
      [](const ProcessGroup& group) {
        ShardedOptimizer optimizer(group, {.stage = 3});
        optimizer.add_group(SGD{});
        const Unit unit = optimizer.add_unit(
            "u", {{.name = "w", .shape = {64}}},
            {.acquire = [](std::size_t) -> void* { return nullptr; }, .release = [](void*) {}});
        optimizer.initialize(constant(0));
        const Evaluation evaluation = optimizer.evaluation();
        EXPECT_THAT(thrown<OutOfMemory>([&] { (void)unit.gather(); }),
                    testing::AllOf(testing::HasSubstr("\"u\""), testing::HasSubstr("256 bytes")));
      },
      {.mode = GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Modes, Hooks,
                         testing::Values(ThreadsOptions::Mode::direct,
                                         ThreadsOptions::Mode::streams),
                         [](const auto& info) {
                           return info.param == ThreadsOptions::Mode::direct ? "direct" : "streams";
                         });

}  // namespace
}  // namespace ration::test
