// Several names for one tensor.

#include <ration/error.hpp>

#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// "wte" in unit "embedding", tied as "copy" there and as "lm_head" in unit "head".
struct TiedModel {
  TiedModel(const ProcessGroup& group, int stage) : optimizer(group, {.stage = stage}) {
    optimizer.add_group(AdamW{.learning_rate = 0.1});
    embedding = optimizer.add_unit("embedding",
                                   {{.name = "wte", .shape = {10, 7}},
                                    {.name = "copy", .tied_to = "wte"},
                                    {.name = "b", .shape = {7}}},
                                   {.keep_whole = true});
    head = optimizer.add_unit("head", {{.name = "h", .shape = {7}},
                                       {.name = "lm_head", .shape = {10, 7}, .tied_to = "wte"}});
    optimizer.initialize(normal(1.0, 3));
  }

  StepReport step() {
    const MicroStep micro = optimizer.micro_step();
    micro.begin_backward();
    {
      const Gathered weights = head.gather();
      std::fill_n(head.gradient<float>(head["h"]), 7, 2.0f);
      head.gradients_ready();
    }
    // Once by each name: the gradients add up in one place.
    for (const char* name : {"wte", "copy", "lm_head"}) {
      float* gradient = embedding.gradient<float>(optimizer.parameter(name));
      for (int i = 0; i < 70; ++i) gradient[i] += 1.0f;
    }
    std::fill_n(embedding.gradient<float>(embedding["b"]), 7, 1.0f);
    embedding.gradients_ready();
    return optimizer.step();
  }

  ShardedOptimizer optimizer;
  Unit embedding;
  Unit head;
};

TEST(Tied, NamesHaveOneStorageOneStateAndOneNormTerm) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      TiedModel model(group, stage);
      EXPECT_EQ(model.optimizer.parameters().size(), 3u) << "wte, b, h";
      const double expected = std::sqrt(70 * 9.0 + 7 * 1.0 + 7 * 4.0);
      EXPECT_DOUBLE_EQ(model.step().gradient_norm, expected) << "stage " << stage;
      const auto moments = [&](const char* name) {
        return model.optimizer.read(model.optimizer.parameter(name), "exp_avg");
      };
      EXPECT_EQ(moments("lm_head"), moments("wte"));
      EXPECT_THAT(moments("copy"), testing::Each(testing::FloatNear(0.3f, 1e-6f)));
      std::uint64_t state = 0;
      for (const InventoryEntry& entry : model.optimizer.inventory()) {
        if (entry.kind == MemoryKind::optimizer_state) state += entry.bytes;
      }
      const std::uint64_t owners = stage == 0 ? 3 : 1;  // shards that lie on this rank
      EXPECT_EQ(state, owners * 2 * 4 * (64 + 64)) << "moments of embedding and head, padded";
    });
  }
}

TEST(Tied, AllNamesFindTheSameParameter) {
  with_ranks(2, [](const ProcessGroup& group) {
    TiedModel model(group, 3);
    EXPECT_EQ(model.optimizer.parameter("lm_head").name(), "wte");
    EXPECT_EQ(model.optimizer.parameter("lm_head").count(), 70);
    EXPECT_EQ(model.head["lm_head"].name(), "wte");
    EXPECT_EQ(model.embedding["copy"].name(), "wte");
    EXPECT_THAT(thrown<InvalidArgument>([&] { (void)model.head["wte"]; }),
                AllOf(HasSubstr("\"head\""), HasSubstr("\"wte\"")))
        << "which is not its name there";
  });
}

TEST(Tied, TheGuardOfAnotherUnitRefusesAndNamesTheHome) {
  for (const int stage : {0, 3}) {
    with_ranks(2, [&](const ProcessGroup& group) {
      TiedModel model(group, stage);
      const MicroStep micro = model.optimizer.micro_step();
      {
        const Gathered head = model.head.gather();
        const Gathered embedding = model.embedding.gather();
        EXPECT_NE(embedding.data<float>(model.head["lm_head"]), nullptr);
        EXPECT_THAT(thrown<InvalidArgument>([&] { (void)head.data<float>(model.head["lm_head"]); }),
                    AllOf(HasSubstr("\"wte\""), HasSubstr("in unit \"embedding\""),
                          HasSubstr("guard of \"head\"")));
      }
      micro.begin_backward();
      EXPECT_THAT(
          thrown<InvalidArgument>([&] { (void)model.head.gradient<float>(model.head["lm_head"]); }),
          AllOf(HasSubstr("\"wte\""), HasSubstr("\"embedding\""), HasSubstr("\"head\"")));
    });
  }
}

TEST(Tied, EveryStageGivesTheSameBits) {
  std::vector<std::uint64_t> digests(4);
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      TiedModel model(group, stage);
      for (int i = 0; i < 3; ++i) model.step();
      const std::uint64_t digest = model.optimizer.digest();
      if (group.rank() == 0) digests[static_cast<std::size_t>(stage)] = digest;
    });
  }
  EXPECT_THAT(digests, testing::Each(digests[0]));
}

TEST(Tied, ToATiedNameIsTiedToItsStorage) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {});
  optimizer.add_group(SGD{});
  optimizer.add_unit(
      "u",
      {{.name = "a", .shape = {5}}, {.name = "b", .tied_to = "a"}, {.name = "c", .tied_to = "b"}});
  optimizer.add_unit("v", {{.name = "d", .tied_to = "c"}});
  for (const char* name : {"b", "c", "d"}) EXPECT_EQ(optimizer.parameter(name).name(), "a");
}

TEST(Tied, WhatDoesNotFitIsRefused) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {});
  optimizer.add_group(SGD{});
  optimizer.add_unit("u", {{.name = "a", .shape = {2, 3}}});
  const auto refused = [&](ParameterSpec spec) {
    return thrown<InvalidArgument>([&] { optimizer.add_unit("v", {std::move(spec)}); });
  };
  EXPECT_THAT(refused({.name = "b", .tied_to = "nowhere"}),
              AllOf(HasSubstr("\"b\""), HasSubstr("\"nowhere\""), HasSubstr("not registered")));
  EXPECT_THAT(refused({.name = "b", .tied_to = "b"}), HasSubstr("not registered"));
  EXPECT_THAT(refused({.name = "b", .shape = {3, 2}, .tied_to = "a"}),
              AllOf(HasSubstr("[3, 2]"), HasSubstr("[2, 3]"), HasSubstr("\"a\"")));
  EXPECT_THAT(refused({.name = "b", .dtype = DType::bf16, .tied_to = "a"}),
              AllOf(HasSubstr("bf16"), HasSubstr("f32"), HasSubstr("\"a\"")));
  std::vector<float> own(6);
  EXPECT_THAT(refused({.name = "b", .tied_to = "a", .data = own.data()}),
              AllOf(HasSubstr("\"b\""), HasSubstr("shares its memory")));
}

}  // namespace
}  // namespace ration::test
