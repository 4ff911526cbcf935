// The plan against ZeRO's table (Rajbhandari et al. 2020, figure 1), and what is allocated against
// the plan.

#include <fmt/format.h>

#include "support/throws.hpp"

namespace ration::test {
namespace {

constexpr int kRanks = 4;

std::vector<TinyUnit> layers(int count) {
  std::vector<TinyUnit> model;
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("h{}", i);
    model.push_back({name, {{name + ".w", {700, 700}}, {name + ".b", {700}}}});
  }
  return model;
}

/// Planned bytes of one rank by kind, nothing allocated.
std::array<std::uint64_t, kMemoryKinds> planned(const Config& config,
                                                const std::vector<TinyUnit>& model = layers(6)) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(kRanks)[0]), config);
  optimizer.add_group(AdamW{});
  for (const TinyUnit& unit : model) {
    std::vector<ParameterSpec> specs;
    for (const auto& [name, shape] : unit.parameters)
      specs.push_back({.name = name, .shape = shape});
    optimizer.add_unit(unit.name, specs);
  }
  EXPECT_EQ(optimizer.memory().allocated, (std::array<std::uint64_t, kMemoryKinds>{}));
  return optimizer.memory().planned;
}

double model_state(const std::array<std::uint64_t, kMemoryKinds>& bytes) {
  return static_cast<double>(bytes[static_cast<std::size_t>(MemoryKind::parameters)] +
                             bytes[static_cast<std::size_t>(MemoryKind::gradients)] +
                             bytes[static_cast<std::size_t>(MemoryKind::optimizer_state)]);
}

double buffers(const std::array<std::uint64_t, kMemoryKinds>& bytes) {
  return static_cast<double>(bytes[static_cast<std::size_t>(MemoryKind::buffers)]);
}

constexpr double kElements = 6 * (700 * 700 + 700);
constexpr double kUnit = 700 * 700 + 700;

Config bf16_config(int stage, Master master = Master::fp32) {
  return {.stage = stage, .precision = {.parameter = DType::bf16, .master = master}};
}

TEST(Planned, IsZerosTable) {
  const double n = kRanks;
  const std::vector<double> per_element = {16, 4 + 12 / n, 2 + 14 / n, 16 / n};
  for (const int stage : {0, 1, 2, 3}) {
    const double expected = per_element[static_cast<std::size_t>(stage)] * kElements;
    EXPECT_NEAR(model_state(planned(bf16_config(stage))), expected, 0.03 * expected)
        << "stage " << stage;
  }
}

TEST(Planned, ASplitMasterSavesTwoBytesAnElement) {
  const double n = kRanks;
  const std::vector<double> per_element = {14, 4 + 10 / n, 2 + 12 / n, 14 / n};
  for (const int stage : {0, 1, 2, 3}) {
    const double expected = per_element[static_cast<std::size_t>(stage)] * kElements;
    EXPECT_NEAR(model_state(planned(bf16_config(stage, Master::split))), expected, 0.03 * expected)
        << "stage " << stage;
  }
}

TEST(Planned, Fp32WeightsNeedNoMaster) {
  const double n = kRanks;
  const std::vector<double> per_element = {16, 8 + 8 / n, 4 + 12 / n, 16 / n};
  for (const int stage : {0, 1, 2, 3}) {
    const double expected = per_element[static_cast<std::size_t>(stage)] * kElements;
    EXPECT_NEAR(model_state(planned({.stage = stage})), expected, 0.03 * expected);
  }
}

TEST(Planned, Bf16MomentsSaveFourBytesAnElement) {
  Config config = bf16_config(0);
  config.precision.moments = DType::bf16;
  EXPECT_NEAR(model_state(planned(config)), 12 * kElements, 0.03 * 12 * kElements);
}

TEST(Planned, BuffersAreTwoUnitsWhateverTheModelsDepth) {
  for (const int depth : {2, 6, 9}) {
    EXPECT_EQ(buffers(planned(bf16_config(0), layers(depth))), 0);
    EXPECT_EQ(buffers(planned(bf16_config(1), layers(depth))), 0);
    EXPECT_NEAR(buffers(planned(bf16_config(2), layers(depth))), 2 * 2 * kUnit, 0.03 * 4 * kUnit)
        << "buckets";
    EXPECT_NEAR(buffers(planned(bf16_config(3), layers(depth))), 4 * 2 * kUnit, 0.03 * 8 * kUnit)
        << "gather slots too";
  }
  Config config = bf16_config(3);
  config.prefetch = 3;
  config.buckets = 1;
  EXPECT_NEAR(buffers(planned(config)), (4 + 1) * 2 * kUnit, 0.03 * 10 * kUnit);
}

TEST(Planned, SeveralMicroStepsAddAtMostAnFp32GradientWholeOrSharded) {
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const int stage : {0, 1, 2, 3}) {
      Config one{.stage = stage, .precision = {.parameter = type}};
      const double before = model_state(planned(one));
      for (const auto accumulation : {Accumulation::local, Accumulation::sharded}) {
        Config several = one;
        several.micro_steps = 4;
        several.accumulation = accumulation;
        const double added = model_state(planned(several)) - before;
        // Stage 0 keeps what is reduced whole, so it has no sharded sum (docs).
        const bool sharded = accumulation == Accumulation::sharded && stage > 0;
        const double allowed = sharded ? 4 * kElements / kRanks : 4 * kElements;
        EXPECT_LE(added, 1.03 * allowed)
            << "stage " << stage << ", " << name_of(type) << (sharded ? ", sharded" : ", local");
      }
    }
  }
}

TEST(Planned, TheInventoryIsThereBeforeAndAfterAllocationTheSame) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto before = planned(bf16_config(stage), layers(2));
    with_ranks(kRanks, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = bf16_config(stage), .model = layers(2)});
      const MemoryReport report = trainer.optimizer().memory();
      EXPECT_EQ(report.planned, before) << "stage " << stage;
      const double entries = static_cast<double>(trainer.optimizer().inventory().size());
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
        EXPECT_GE(report.allocated[kind], report.planned[kind]);
        EXPECT_LE(static_cast<double>(report.allocated[kind]),
                  static_cast<double>(report.planned[kind]) + 256 * entries)
            << name_of(static_cast<MemoryKind>(kind));
      }
      EXPECT_THAT(report.table(), testing::HasSubstr("optimizer_state"));
      EXPECT_THAT(report.table(), testing::HasSubstr("total"));
    });
  }
}

TEST(Planned, ATrainersOwnTensorsAreCountedAsItsOwn) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(kRanks)[0]), {.stage = 1});
  optimizer.add_group(AdamW{});
  std::vector<float> data(6400);
  std::vector<float> gradient(6400);
  optimizer.add_unit(
      "u", {{.name = "w", .shape = {6400}, .data = data.data(), .gradient = gradient.data()}});
  const auto bytes = optimizer.memory().planned;
  EXPECT_EQ(bytes[static_cast<std::size_t>(MemoryKind::trainer)], 2u * 6400 * 4);
  EXPECT_EQ(bytes[static_cast<std::size_t>(MemoryKind::parameters)], 6400u) << "a shard";
}

}  // namespace
}  // namespace ration::test
