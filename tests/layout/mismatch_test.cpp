// Rank 1 registers, or asks for, something else: all ranks throw the same, nobody hangs.

#include <ration/error.hpp>

#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<ParameterSpec> right() {
  return {{.name = "a", .shape = {4, 3}}, {.name = "b", .shape = {7}}, {.name = "c", .shape = {2}}};
}

struct Mismatch {
  std::string name;
  std::function<void(ShardedOptimizer&)> wrong;  // what rank 1 registers
  std::vector<std::string> texts;
};

void PrintTo(const Mismatch& mismatch, std::ostream* out) {
  *out << mismatch.name;
}

std::function<void(ShardedOptimizer&)> with(std::function<void(std::vector<ParameterSpec>&)> change,
                                            UnitOptions options = {}) {
  return [=](ShardedOptimizer& optimizer) {
    std::vector<ParameterSpec> specs = right();
    change(specs);
    optimizer.add_unit("u", specs, options);
  };
}

class Registration : public testing::TestWithParam<Mismatch> {};

TEST_P(Registration, ThatDiffersOnRank1IsNamedOnAllRanks) {
  const auto texts = thrown_on_all<InvalidArgument>(3, [](const ProcessGroup& group) {
    ShardedOptimizer optimizer(group, {.stage = 3});
    optimizer.add_group(SGD{});
    optimizer.add_group(SGD{});
    if (group.rank() == 1) {
      GetParam().wrong(optimizer);
    } else {
      optimizer.add_unit("u", right());
    }
    optimizer.initialize(constant(0));
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts[0]);
    EXPECT_THAT(text, HasSubstr("rank 1"));
    for (const std::string& part : GetParam().texts) EXPECT_THAT(text, HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Registration,
    testing::Values(
        Mismatch{"OneMore",
                 with([](auto& s) { s.push_back({.name = "d", .shape = {1}}); }),
                 {"\"d\"", "rank 0 has no such"}},
        Mismatch{"OneFewer", with([](auto& s) { s.pop_back(); }), {"\"c\"", "missing"}},
        Mismatch{"Shape", with([](auto& s) { s[1].shape = {8}; }), {"\"b\"", "[8]", "[7]"}},
        Mismatch{"ShapeOfAsManyElements",
                 with([](auto& s) {
                   s[0].shape = {3, 4};
                 }),
                 {"\"a\"", "[3, 4]", "[4, 3]"}},
        Mismatch{"Order", with([](auto& s) { std::swap(s[0], s[1]); }), {"\"b\"", "\"a\""}},
        Mismatch{"Name", with([](auto& s) { s[2].name = "z"; }), {"\"z\"", "\"c\""}},
        Mismatch{"Type", with([](auto& s) { s[1].dtype = DType::bf16; }), {"\"b\"", "bf16", "f32"}},
        Mismatch{"Trainable",
                 with([](auto& s) { s[2].trainable = false; }),
                 {"\"c\"", "trainable", "true", "false"}},
        Mismatch{"Tied", with([](auto& s) { s[2] = {.name = "c", .tied_to = "a"}; }), {"\"c\""}},
        Mismatch{"KeepWhole",
                 with([](auto&) {}, {.keep_whole = true}),
                 {"\"a\"", "keep_whole", "true", "false"}},
        Mismatch{"Unit",
                 [](ShardedOptimizer& o) { o.add_unit("v", right()); },
                 {"\"a\"", "unit v", "has u"}},
        Mismatch{"AnotherUnit",
                 [](ShardedOptimizer& o) {
                   o.add_unit("u", right());
                   o.add_unit("v", {{.name = "d"}});
                 },
                 {"\"d\"", "rank 0 has no such"}},
        Mismatch{"Group",
                 [](ShardedOptimizer& o) {
                   const Group third = o.add_group(SGD{});
                   auto specs = right();
                   specs[1].group = third;
                   o.add_unit("u", specs);
                 },
                 {"group SGD"}}),
    [](const auto& info) { return info.param.name; });

TEST(Registration, AnotherGroupOfAParameterIsNamed) {
  const auto texts = thrown_on_all<InvalidArgument>(2, [](const ProcessGroup& group) {
    ShardedOptimizer optimizer(group, {});
    optimizer.add_group(SGD{});
    const Group second = optimizer.add_group(SGD{});
    auto specs = right();
    if (group.rank() == 1) specs[1].group = second;
    optimizer.add_unit("u", specs);
    optimizer.initialize(constant(0));
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("\"b\""), HasSubstr("group 1"),
                            HasSubstr("rank 0 has 0")));
}

struct ConfigMismatch {
  std::string name;
  Config rank0;
  Config rank1;
  Rule rule0 = SGD{};
  Rule rule1 = SGD{};
  std::vector<std::string> texts = {};
};

void PrintTo(const ConfigMismatch& mismatch, std::ostream* out) {
  *out << mismatch.name;
}

class Options : public testing::TestWithParam<ConfigMismatch> {};

TEST_P(Options, ThatDifferOnRank1AreShownOnAllRanks) {
  const ConfigMismatch& p = GetParam();
  const auto texts = thrown_on_all<InvalidArgument>(3, [&](const ProcessGroup& group) {
    ShardedOptimizer optimizer(group, group.rank() == 1 ? p.rank1 : p.rank0);
    optimizer.add_group(group.rank() == 1 ? p.rule1 : p.rule0);
    optimizer.add_unit("u", right());
    optimizer.initialize(constant(0));
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts[0]);
    EXPECT_THAT(text, HasSubstr("rank 1"));
    for (const std::string& part : p.texts) EXPECT_THAT(text, HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Options,
    testing::Values(
        ConfigMismatch{.name = "Stage",
                       .rank0 = {.stage = 1},
                       .rank1 = {.stage = 3},
                       .texts = {"stage 3", "stage 1"}},
        ConfigMismatch{.name = "Type",
                       .rank1 = {.precision = Precision::bf16()},
                       .texts = {"parameter bf16", "parameter f32"}},
        ConfigMismatch{.name = "Reduce",
                       .rank1 = {.precision = {.reduce = DType::bf16}},
                       .texts = {"reduce bf16", "reduce default"}},
        ConfigMismatch{.name = "Moments",
                       .rank1 = {.precision = {.moments = DType::bf16}},
                       .texts = {"moments bf16", "moments f32"}},
        ConfigMismatch{.name = "MicroSteps",
                       .rank1 = {.micro_steps = 2},
                       .texts = {"micro_steps 2", "micro_steps 1"}},
        ConfigMismatch{.name = "Accumulation",
                       .rank1 = {.accumulation = Accumulation::sharded},
                       .texts = {"accumulation sharded", "accumulation local"}},
        ConfigMismatch{.name = "LossScale",
                       .rank1 = {.loss_scale = {.initial = 8}},
                       .texts = {"loss_scale 8", "loss_scale 1"}},
        ConfigMismatch{.name = "LossScaleGrowth",
                       .rank0 = {.loss_scale = {.dynamic = true, .growth_interval = 5}},
                       .rank1 = {.loss_scale = {.dynamic = true, .growth_interval = 6}},
                       .texts = {"interval 6", "interval 5"}},
        ConfigMismatch{
            .name = "Prefetch", .rank1 = {.prefetch = 2}, .texts = {"prefetch 2", "prefetch 1"}},
        ConfigMismatch{
            .name = "Replicas", .rank1 = {.replicas = 2}, .texts = {"replicas 2", "replicas 1"}},
        ConfigMismatch{.name = "Rule", .rule1 = AdamW{}, .texts = {"group AdamW", "group SGD"}},
        ConfigMismatch{
            .name = "StateOfTheRule", .rule1 = SGD{.momentum = 0.9}, .texts = {"momentum_buffer"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ration::test
