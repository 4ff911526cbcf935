// What registration and construction refuse, and units cut from a list.

#include <fmt/format.h>

#include "model.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ProcessGroup one() {
  return ProcessGroup(make_threads(1)[0]);
}

TEST(Registration, RefusesWhatMakesNoSense) {
  ShardedOptimizer optimizer(one(), {});
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.add_unit("u", {{.name = "w"}}); }),
              AllOf(HasSubstr("\"u\""), HasSubstr("add_group before add_unit")));
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.initialize(constant(0)); }),
              HasSubstr("before any unit"));
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.add_group(AdamW{.learning_rate = -1}); }),
              HasSubstr("learning_rate is -1"));
  optimizer.add_group(SGD{});
  const auto acquire = [](std::size_t) -> void* { return nullptr; };
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.add_unit("u", {}, {.acquire = acquire}); }),
              AllOf(HasSubstr("\"u\""), HasSubstr("acquire and release come together")));
  float data = 0;
  EXPECT_THAT(thrown<InvalidArgument>([&] {
                optimizer.add_unit("u", {{.name = "w", .data = &data}},
                                   {.acquire = acquire, .release = [](void*) {}});
              }),
              AllOf(HasSubstr("\"u\""), HasSubstr("not both")));
  EXPECT_THAT(thrown<InvalidArgument>([&] {
                optimizer.add_unit("u", {{.name = "w", .data = &data}, {.name = "v"}});
              }),
              AllOf(HasSubstr("\"v\""), HasSubstr("all parameters give data")));
  EXPECT_THAT(thrown<InvalidArgument>([&] {
                optimizer.add_unit("u", {{.name = "w", .gradient = &data}, {.name = "v"}});
              }),
              AllOf(HasSubstr("\"v\""), HasSubstr("gradient")));
  ShardedOptimizer other(one(), {});
  const Group foreign = other.add_group(SGD{});
  EXPECT_THAT(
      thrown<InvalidArgument>([&] { optimizer.add_unit("u", {{.name = "w", .group = foreign}}); }),
      AllOf(HasSubstr("\"w\""), HasSubstr("another optimizer")));
}

TEST(Registration, RefusesParametersOfOthers) {
  ShardedOptimizer optimizer(one(), {});
  ShardedOptimizer other(one(), {});
  for (ShardedOptimizer* o : {&optimizer, &other}) {
    o->add_group(SGD{});
    o->add_unit("u", {{.name = "w"}});
    o->initialize(constant(0));
  }
  const Parameter foreign = other.parameter("w");
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer.read(foreign, "parameter"); }),
              HasSubstr("belongs to another optimizer"));
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer.step_count(foreign); }),
              HasSubstr("another optimizer"));
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.set_trainable(Parameter(), false); }),
              HasSubstr("belongs to no optimizer"));
  const Whole whole = optimizer.gather_all();
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)whole.bytes(foreign); }),
              HasSubstr("another optimizer"));
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)whole.data<bf16>(optimizer.parameter("w")); }),
              AllOf(HasSubstr("\"w\""), HasSubstr("bf16"), HasSubstr("f32")));
}

TEST(Registration, EmptyHandlesSayWhatTheyAre) {
  EXPECT_THAT(thrown<InvalidArgument>([] { (void)Parameter().name(); }),
              HasSubstr("parameter is empty"));
  EXPECT_THAT(thrown<InvalidArgument>([] { (void)Unit().gather(); }), HasSubstr("unit is empty"));
  EXPECT_THAT(thrown<InvalidArgument>([] { Group().set_learning_rate(1); }),
              HasSubstr("group is empty"));
  EXPECT_THAT(thrown<InvalidArgument>([] { (void)Gradients().spans(); }),
              HasSubstr("gradients is empty"));
  EXPECT_THAT(thrown<InvalidArgument>([] { (void)Whole().bytes(Parameter()); }),
              HasSubstr("empty"));
  EXPECT_THAT(thrown<InvalidArgument>([] { ShardedOptimizer(ProcessGroup(), {}); }),
              HasSubstr("process group is empty"));
  EXPECT_FALSE(Parameter().valid());
}

TEST(Construction, NamesTheOptionThatMakesNoSense) {
  const auto refused = [](const Config& config) {
    return thrown<InvalidArgument>([&] { ShardedOptimizer(one(), config); });
  };
  EXPECT_THAT(refused({.stage = 4}), HasSubstr("Config::stage is 4"));
  EXPECT_THAT(refused({.stage = -1}), HasSubstr("Config::stage is -1"));
  EXPECT_THAT(refused({.micro_steps = 0}), HasSubstr("Config::micro_steps is 0"));
  EXPECT_THAT(refused({.prefetch = -1}), HasSubstr("Config::prefetch is -1"));
  EXPECT_THAT(refused({.buckets = 0}), HasSubstr("Config::buckets is 0"));
  EXPECT_THAT(refused({.replicas = 0}), HasSubstr("Config::replicas is 0"));
  EXPECT_THAT(refused({.loss_scale = {.initial = 0}}), HasSubstr("loss_scale.initial is 0"));
  EXPECT_THAT(refused({.precision = {.parameter = DType::i64}}),
              HasSubstr("precision.parameter is i64"));
  EXPECT_THAT(refused({.precision = {.gradient = DType::f64}}),
              HasSubstr("precision.gradient is f64"));
  EXPECT_THAT(refused({.precision = {.reduce = DType::u8}}), HasSubstr("precision.reduce is u8"));
  EXPECT_THAT(refused({.precision = {.moments = DType::f16}}),
              HasSubstr("precision.moments is f16"));
  EXPECT_THAT(refused({.precision = {.parameter = DType::f16, .master = Master::split}}),
              AllOf(HasSubstr("precision.master is split"), HasSubstr("f16")));
}

TEST(Construction, InitializesOnce) {
  ShardedOptimizer optimizer(one(), {});
  optimizer.add_group(SGD{});
  optimizer.add_unit("u", {{.name = "w"}});
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.micro_step(); }),
              HasSubstr("call initialize first"));
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer.digest(); }),
              HasSubstr("call initialize first"));
  optimizer.initialize(constant(0));
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.initialize(constant(0)); }),
              HasSubstr("initialize called twice"));
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.initialize_from_data(); }),
              HasSubstr("initialize called twice"));
}

TEST(AddUnits, CutsTheListWithoutCuttingAParameter) {
  ShardedOptimizer optimizer(one(), {});
  optimizer.add_group(SGD{});
  std::vector<ParameterSpec> specs;
  for (const std::int64_t size : {60, 60, 10, 500, 1, 99, 0, 1})
    specs.push_back({.name = fmt::format("p{}", specs.size()), .shape = {size}});
  specs.push_back({.name = "tied", .tied_to = "p0"});
  const std::vector<Unit> units = optimizer.add_units(specs, 100);
  std::vector<std::string> names;
  for (const Unit& unit : units) names.push_back(unit.name());
  EXPECT_THAT(names, testing::ElementsAre("unit.0", "unit.1", "unit.2", "unit.3", "unit.4"));
  const std::vector<int> home = {0, 1, 1, 2, 3, 3, 3, 4, 4};
  for (std::size_t p = 0; p < home.size(); ++p)
    EXPECT_TRUE(units[static_cast<std::size_t>(home[p])][specs[p].name].valid());
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.add_units({{.name = "q"}}, 0); }),
              HasSubstr("elements_per_unit is 0"));
}

TEST(AddUnits, TrainsToTheBitsOfUnitsGivenByHand) {
  std::vector<ParameterSpec> specs = {{.name = "a", .shape = {70}}, {.name = "b", .shape = {9}}};
  const auto trained = [&](bool cut) {
    std::vector<float> result;
    with_ranks(2, [&](const ProcessGroup& group) {
      ShardedOptimizer optimizer(group, {.stage = 3});
      optimizer.add_group(AdamW{.learning_rate = 0.1});
      std::vector<Unit> units;
      if (cut) {
        units = optimizer.add_units(specs, 70);
      } else {
        units = {optimizer.add_unit("x", {specs[0]}), optimizer.add_unit("y", {specs[1]})};
      }
      EXPECT_EQ(units.size(), 2u);
      optimizer.initialize(normal(1, 1));
      const MicroStep micro = optimizer.micro_step();
      micro.begin_backward();
      std::fill_n(units[1].gradient<float>(units[1]["b"]), 9, 1.0f);
      units[1].gradients_ready();
      std::fill_n(units[0].gradient<float>(units[0]["a"]), 70, -1.0f);
      units[0].gradients_ready();
      optimizer.step();
      auto values = optimizer.read(optimizer.parameter("a"), "parameter");
      for (const float v : optimizer.read(optimizer.parameter("b"), "parameter"))
        values.push_back(v);
      if (group.rank() == 0) result = values;
    });
    return result;
  };
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace
}  // namespace ration::test
