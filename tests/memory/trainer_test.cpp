// Tensors and gradients that are the trainer's own: the same bits as the library's.

#include <fmt/format.h>

#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Owns {
  bool data = false;
  bool gradient = false;
};

struct Setting {
  int stage = 0;
  Owns owns = {};
  DType type = DType::f32;
  int micro_steps = 1;
  Accumulation accumulation = Accumulation::local;
};

// {unit, name, elements}; one is empty, one alone in its unit.
struct Tensor {
  int unit;
  std::string name;
  std::int64_t count;
};
const std::vector<Tensor> kTensors = {
    {0, "none", 0}, {0, "a", 130}, {0, "b", 7}, {1, "c", 400}, {2, "d", 1}};

float start_value(std::size_t tensor, std::int64_t i, DType type) {
  const float value = noise(5, tensor, static_cast<std::uint64_t>(i), 1);
  return type == DType::bf16 ? static_cast<float>(bf16(value)) : value;
}

/// The parameters after 4 steps, of rank 0.
std::vector<std::vector<float>> trained(const Setting& s) {
  std::vector<std::vector<float>> result;
  with_ranks(3, [&](const ProcessGroup& group) {
    with_type(s.type, [&](auto element) {
      using T = decltype(element);
      std::vector<std::vector<T>> data;
      std::vector<std::vector<T>> gradients;
      for (std::size_t t = 0; t < kTensors.size(); ++t) {
        auto& values = data.emplace_back();
        for (std::int64_t i = 0; i < kTensors[t].count; ++i)
          values.push_back(T(group.rank() == 0 ? start_value(t, i, s.type) : 99.0f));
        gradients.emplace_back(values.size());
      }
      ShardedOptimizer optimizer(group, {.stage = s.stage,
                                         .precision = {.parameter = s.type},
                                         .micro_steps = s.micro_steps,
                                         .accumulation = s.accumulation});
      optimizer.add_group(AdamW{.learning_rate = 0.05});
      std::vector<Unit> units;
      for (int u = 0; u < 3; ++u) {
        std::vector<ParameterSpec> specs;
        for (std::size_t t = 0; t < kTensors.size(); ++t) {
          if (kTensors[t].unit != u) continue;
          specs.push_back({.name = kTensors[t].name,
                           .shape = {kTensors[t].count},
                           .data = s.owns.data ? data[t].data() : nullptr,
                           .gradient = s.owns.gradient ? gradients[t].data() : nullptr});
        }
        units.push_back(optimizer.add_unit(fmt::format("u{}", u), specs));
      }
      if (s.owns.data) {
        optimizer.initialize_from_data();
      } else {
        optimizer.initialize([&](const InitializeRun& run) {
          std::size_t t = 0;
          while (kTensors[t].name != run.name) ++t;
          for (std::size_t i = 0; i < run.values.size(); ++i)
            run.values[i] =
                start_value(t, static_cast<std::int64_t>(run.first_element + i), s.type);
        });
      }
      for (int step = 0; step < 4; ++step) {
        for (int m = 0; m < s.micro_steps; ++m) {
          const MicroStep micro = optimizer.micro_step(m, s.micro_steps);
          micro.begin_backward();
          Gathered weights;
          for (std::size_t t = kTensors.size(); t-- > 0;) {
            const Unit& unit = units[static_cast<std::size_t>(kTensors[t].unit)];
            const Parameter p = unit[kTensors[t].name];
            const bool last_of_unit = t == 0 || kTensors[t - 1].unit != kTensors[t].unit;
            const bool first_of_unit =
                t + 1 == kTensors.size() || kTensors[t + 1].unit != kTensors[t].unit;
            if (first_of_unit) weights = unit.gather();
            const T* w = weights.data<T>(p);
            if (s.owns.data && kTensors[t].count > 0) {
              EXPECT_EQ(w, data[t].data());
            }
            T* g = s.owns.gradient ? gradients[t].data() : unit.gradient<T>(p);
            for (std::int64_t i = 0; i < kTensors[t].count; ++i)
              g[i] = T(0.5f * static_cast<float>(w[i]) +
                       noise(static_cast<std::uint64_t>(step * 8 + m),
                             static_cast<std::uint64_t>(group.rank()), t,
                             static_cast<std::uint64_t>(i)));
            if (last_of_unit) {
              weights.release();
              unit.gradients_ready();
            }
          }
        }
        EXPECT_FALSE(optimizer.step({.clip_norm = 2.0}).skipped);
      }
      std::vector<std::vector<float>> values;
      for (const Tensor& tensor : kTensors)
        values.push_back(optimizer.read(optimizer.parameter(tensor.name), "parameter"));
      if (s.owns.data) {
        for (std::size_t t = 0; t < kTensors.size(); ++t) {
          for (std::size_t i = 0; i < data[t].size(); ++i)
            EXPECT_EQ(static_cast<float>(data[t][i]), values[t][i]) << "kept up to date";
        }
      }
      if (group.rank() == 0) result = values;
    });
  });
  return result;
}

class Owned : public testing::TestWithParam<DType> {};

TEST_P(Owned, TensorsTrainToTheLibrarysBits) {
  const auto expected = trained({.stage = 0, .type = GetParam()});
  for (const int stage : {0, 1, 2}) {
    EXPECT_EQ(trained({.stage = stage, .owns = {.data = true}, .type = GetParam()}), expected)
        << "stage " << stage;
  }
}

TEST_P(Owned, GradientsTrainToTheLibrarysBits) {
  const auto expected = trained({.stage = 0, .type = GetParam()});
  for (const int stage : {0, 1}) {
    for (const bool data : {false, true}) {
      EXPECT_EQ(
          trained({.stage = stage, .owns = {.data = data, .gradient = true}, .type = GetParam()}),
          expected)
          << "stage " << stage;
    }
  }
}

TEST_P(Owned, GradientsAreAddedUpOverMicroSteps) {
  for (const auto accumulation : {Accumulation::local, Accumulation::sharded}) {
    // bf16 and sharded sums: the library's gradient is a micro-step's own, written whole.
    if (GetParam() == DType::f32 && accumulation == Accumulation::local) continue;
    const Setting plain{
        .stage = 0, .type = GetParam(), .micro_steps = 3, .accumulation = accumulation};
    const auto expected = trained(plain);
    for (const int stage : {0, 1}) {
      Setting own = plain;
      own.stage = stage;
      own.owns = {.data = true, .gradient = true};
      EXPECT_EQ(trained(own), expected) << "stage " << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Owned, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(TrainersOwn, GradientsAtStage2AreRefusedWithAdvice) {
  for (const int stage : {2, 3}) {
    const auto texts = thrown_on_all<InvalidArgument>(2, [&](const ProcessGroup& group) {
      std::vector<float> gradient(9);
      ShardedOptimizer optimizer(group, {.stage = stage});
      optimizer.add_group(SGD{});
      optimizer.add_unit("u", {{.name = "w", .shape = {9}, .gradient = gradient.data()}});
      EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer.inventory(); }),
                  HasSubstr("\"u\""));
      optimizer.initialize(constant(0));
    });
    for (const std::string& text : texts)
      EXPECT_THAT(text, AllOf(HasSubstr("\"u\""), HasSubstr("shards gradients"),
                              HasSubstr("Unit::gradient, or use stage 1")));
  }
}

TEST(TrainersOwn, TensorsAtStage3AreRefusedWithAdvice) {
  const auto texts = thrown_on_all<InvalidArgument>(2, [](const ProcessGroup& group) {
    std::vector<float> data(9);
    ShardedOptimizer optimizer(group, {.stage = 3});
    optimizer.add_group(SGD{});
    optimizer.add_unit("u", {{.name = "w", .shape = {9}, .data = data.data()}});
    optimizer.initialize_from_data();
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("\"u\""), HasSubstr("stage 3 shards parameters"),
                            HasSubstr("acquire and release"), HasSubstr("stage 2")));
}

TEST(TrainersOwn, InitializeFromDataNeedsAllData) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {});
  optimizer.add_group(SGD{});
  optimizer.add_unit("u", {{.name = "w", .shape = {9}}});
  EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.initialize_from_data(); }),
              AllOf(HasSubstr("\"w\""), HasSubstr("gives no data")));
}

TEST(TrainersOwn, InitializeFromDataTwiceLeavesTheTensorsAlone) {
  with_ranks(2, [](const ProcessGroup& group) {
    std::vector<float> data(9, static_cast<float>(group.rank()));
    ShardedOptimizer optimizer(group, {.stage = 1});
    optimizer.add_group(SGD{});
    optimizer.add_unit("u", {{.name = "w", .shape = {9}, .data = data.data()}});
    optimizer.initialize_from_data();
    EXPECT_THAT(data, testing::Each(0.0f)) << "rank 0's";
    data.assign(9, static_cast<float>(10 + group.rank()));
    EXPECT_THAT(thrown<InvalidArgument>([&] { optimizer.initialize_from_data(); }),
                HasSubstr("twice"));
    EXPECT_THAT(data, testing::Each(static_cast<float>(10 + group.rank())));
  });
}

TEST(TrainersOwn, GradientIsNotTheLibrarysToGive) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {});
  optimizer.add_group(SGD{});
  std::vector<float> gradient(9);
  const Unit unit =
      optimizer.add_unit("u", {{.name = "w", .shape = {9}, .gradient = gradient.data()}});
  optimizer.initialize(constant(0));
  const MicroStep micro = optimizer.micro_step();
  micro.begin_backward();
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)unit.gradient<float>(unit["w"]); }),
              AllOf(HasSubstr("\"w\""), HasSubstr("trainer's own")));
}

}  // namespace
}  // namespace ration::test
