// Parameters that are not trained: registered so, masked, frozen and thawed.

#include <bit>

#include "model.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::uint64_t bytes_of(const ShardedOptimizer& optimizer, MemoryKind kind) {
  return optimizer.memory().planned[static_cast<std::size_t>(kind)];
}

TEST(Frozen, HasNoGradientMemoryAndNoStateAndKeepsItsBits) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage, .buckets = 1}, {AdamW{.learning_rate = 0.1}},
                         {{"w", {70}}, {"frozen", {9, 100}, 0, false}});
      for (const InventoryEntry& entry : model.optimizer.inventory()) {
        if (!entry.name.starts_with("unit/f32/frozen")) continue;
        EXPECT_EQ(entry.kind, MemoryKind::parameters) << entry.name;
      }
      GroupedModel alone(group, {.stage = stage, .buckets = 1}, {AdamW{}}, {{"w", {70}}});
      for (const MemoryKind kind : {MemoryKind::gradients, MemoryKind::optimizer_state})
        EXPECT_EQ(bytes_of(model.optimizer, kind), bytes_of(alone.optimizer, kind));
      const std::vector<float> before = model.read("frozen");
      EXPECT_TRUE(model.read("frozen", "exp_avg").empty());
      model.step({"frozen"});
      model.step({"frozen"});
      EXPECT_EQ(model.read("frozen"), before) << "stage " << stage;
      EXPECT_EQ(model.optimizer.step_count(model.optimizer.parameter("frozen")), 0);

      const Unit unit = model.units[0];
      const MicroStep micro = model.optimizer.micro_step();
      micro.begin_backward();
      const auto text = AllOf(HasSubstr("\"frozen\""), HasSubstr("it is frozen"));
      EXPECT_THAT(thrown<InvalidArgument>([&] { (void)unit.gradient<float>(unit["frozen"]); }),
                  text);
      EXPECT_THAT(thrown<InvalidArgument>([&] { unit.gradient_ready(unit["frozen"]); }), text);
      unit.gradient_ready(unit["w"]);
      model.optimizer.step();
    });
  }
}

TEST(Frozen, CanBeUsedWhole) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {AdamW{}},
                         {{"w", {70}}, {"frozen", {100}, 0, false}});
      const std::vector<float> expected = model.read("frozen");
      const Evaluation evaluation = model.optimizer.evaluation();
      const Gathered weights = model.units[0].gather();
      const float* data = weights.data<float>(model.units[0]["frozen"]);
      EXPECT_EQ(std::vector<float>(data, data + 100), expected) << "stage " << stage;
    });
  }
}

TEST(Masked, KeepsItsBitsItsStateAndItsCount) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {AdamW{.learning_rate = 0.1}},
                         {{"w", {70}}, {"b", {9}}});
      model.step();
      const auto before = everything(model);
      const std::uint64_t memory = bytes_of(model.optimizer, MemoryKind::optimizer_state);
      const Parameter b = model.optimizer.parameter("b");
      model.optimizer.set_trainable(b, false);
      model.step({"b"});
      const auto after = everything(model);
      EXPECT_NE(after[0], before[0]) << "w trains";
      for (std::size_t i = 5; i < 10; ++i) EXPECT_EQ(after[i], before[i]) << "stage " << stage;
      EXPECT_EQ(bytes_of(model.optimizer, MemoryKind::optimizer_state), memory);
      model.optimizer.set_trainable(b, true);
      model.step();
      EXPECT_EQ(model.optimizer.step_count(b), 2);
      EXPECT_NE(model.read("b"), before[5]);
    });
  }
}

TEST(Masked, GivesNoGradient) {
  with_ranks(2, [](const ProcessGroup& group) {
    GroupedModel model(group, {.stage = 2}, {AdamW{}}, {{"w", {70}}, {"b", {9}}});
    model.optimizer.set_trainable(model.optimizer.parameter("b"), false);
    EXPECT_THAT(thrown<InvalidArgument>([&] { model.step(); }),
                AllOf(HasSubstr("\"b\""), HasSubstr("frozen")));
  });
}

TEST(Relayout, FreesTheMemoryOfWhatIsFrozenAndThawsItWithStateThatStarts) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage},
                         {Adagrad{.learning_rate = 0.1, .initial_accumulator = 0.25}},
                         {{"w", {70}}, {"b", {900}}});
      model.step();
      const std::vector<float> w = model.read("w");
      const std::vector<float> w_sum = model.read("w", "sum");
      const std::vector<float> b = model.read("b");
      const std::uint64_t state = bytes_of(model.optimizer, MemoryKind::optimizer_state);
      const std::uint64_t own = stage == 0 ? 15u * 64 : 5u * 64;  // elements of b on a rank
      const Parameter parameter = model.optimizer.parameter("b");

      model.optimizer.set_trainable(parameter, false);
      model.optimizer.relayout();
      EXPECT_LE(bytes_of(model.optimizer, MemoryKind::optimizer_state), state - 4 * own + 256);
      EXPECT_TRUE(model.read("b", "sum").empty());
      EXPECT_EQ(model.read("b"), b);
      EXPECT_EQ(model.read("w"), w);
      EXPECT_EQ(model.read("w", "sum"), w_sum);
      model.step({"b"});
      EXPECT_EQ(model.read("b"), b);

      model.optimizer.set_trainable(parameter, true);
      model.optimizer.relayout();
      EXPECT_EQ(bytes_of(model.optimizer, MemoryKind::optimizer_state), state);
      EXPECT_EQ(model.read("b"), b);
      EXPECT_THAT(model.read("b", "sum"), testing::Each(0.25f)) << "stage " << stage;
      EXPECT_EQ(model.optimizer.step_count(parameter), 0) << "its state starts anew";
      model.step();
      EXPECT_NE(model.read("b"), b);
      EXPECT_EQ(model.optimizer.step_count(parameter), 1);
      EXPECT_EQ(model.optimizer.step_count(model.optimizer.parameter("w")), 3);
    });
  }
}

// The bf16 of a master rounds half up; nearest even would give 0x3f80.
TEST(Relayout, FrozenWeightsKeepTheBitsTheyWereRoundedTo) {
  const float tie = std::bit_cast<float>(0x3f808000u);
  for (const int stage : {0, 1, 3}) {
    for (const Master master : {Master::fp32, Master::split}) {
      with_ranks(2, [&](const ProcessGroup& group) {
        ShardedOptimizer optimizer(
            group, {.stage = stage, .precision = {.parameter = DType::bf16, .master = master}});
        optimizer.add_group(AdamW{});
        const Unit unit = optimizer.add_unit("u", {{.name = "w", .shape = {130}}});
        optimizer.initialize(constant(tie));
        const float rounded = std::bit_cast<float>(0x3f810000u);
        EXPECT_THAT(optimizer.read(unit["w"], "master"), testing::Each(tie));
        EXPECT_THAT(optimizer.read(unit["w"], "parameter"), testing::Each(rounded));
        optimizer.set_trainable(unit["w"], false);
        optimizer.relayout();
        EXPECT_THAT(optimizer.read(unit["w"], "parameter"), testing::Each(rounded))
            << "stage " << stage;
      });
    }
  }
}

}  // namespace
}  // namespace ration::test
