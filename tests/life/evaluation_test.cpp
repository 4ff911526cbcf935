// Looking at the model between steps.

#include "setting.hpp"
#include "support/deadline.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

class Looking : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { set_operation_timeout(std::chrono::seconds(60)); }
  void TearDown() override { set_operation_timeout(std::chrono::seconds(600)); }

  void on_ranks(DType type, const std::function<void(TinyTrainer&, int rank)>& body) {
    with_ranks(3,
               [&](const ProcessGroup& group) {
                 TinyTrainer trainer(group, {.config = {.stage = GetParam().stage,
                                                        .precision = {.parameter = type}}});
                 trainer.step();
                 body(trainer, group.rank());
               },
               {.mode = GetParam().mode});
  }
};

/// What a forward sees of every parameter, as fp32.
std::vector<std::vector<float>> seen(TinyTrainer& trainer) {
  std::vector<std::vector<float>> values;
  const Evaluation evaluation = trainer.optimizer().evaluation();
  for (const Unit& unit : trainer.units()) {
    const Gathered weights = unit.gather();
    for (const Parameter& p : trainer.parameters_of(unit)) {
      with_type(p.dtype(), [&](auto element) {
        using T = decltype(element);
        const T* data = weights.data<T>(p);
        auto& of = values.emplace_back();
        for (std::int64_t i = 0; i < p.count(); ++i) of.push_back(static_cast<float>(data[i]));
      });
    }
  }
  return values;
}

TEST_P(Looking, AnEvaluationGatherAllAndReadAgree) {
  for (const DType type : {DType::f32, DType::bf16}) {
    on_ranks(type, [](TinyTrainer& trainer, int) {
      ShardedOptimizer& optimizer = trainer.optimizer();
      const auto values = seen(trainer);
      const Whole whole = optimizer.gather_all();
      const auto parameters = optimizer.parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        EXPECT_EQ(optimizer.read(parameters[p], "parameter"), values[p]) << parameters[p].name();
        with_type(parameters[p].dtype(), [&](auto element) {
          using T = decltype(element);
          const T* data = whole.data<T>(parameters[p]);
          std::vector<float> of;
          for (std::int64_t i = 0; i < parameters[p].count(); ++i)
            of.push_back(static_cast<float>(data[i]));
          EXPECT_EQ(of, values[p]);
        });
      }
      EXPECT_EQ(seen(trainer), values) << "again";
    });
  }
}

TEST_P(Looking, EqualsStage0) {
  std::vector<std::vector<float>> expected;
  std::uint64_t digest = 0;
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = 0}});
    trainer.step();
    const auto values = seen(trainer);
    const std::uint64_t of = trainer.optimizer().digest();
    if (group.rank() == 0) expected = values, digest = of;
  });
  on_ranks(DType::f32, [&](TinyTrainer& trainer, int) {
    EXPECT_EQ(seen(trainer), expected);
    EXPECT_EQ(trainer.optimizer().digest(), digest);
  });
}

TEST_P(Looking, ChangesNothing) {
  std::vector<std::uint64_t> digests;
  for (const bool looks : {false, true}) {
    on_ranks(DType::f32, [&](TinyTrainer& trainer, int rank) {
      for (int i = 0; i < 3; ++i) {
        if (looks) {
          (void)seen(trainer);
          (void)trainer.optimizer().digest();
          (void)trainer.optimizer().gather_all();
        }
        trainer.step();
      }
      const std::uint64_t digest = trainer.optimizer().digest();
      if (rank == 0) digests.push_back(digest);
    });
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// Ranks use other units, one none at all; what comes after is right on all.
TEST_P(Looking, UnevenlyIsRight) {
  std::vector<std::uint64_t> digests;
  for (const bool looks : {false, true}) {
    on_ranks(DType::f32, [&](TinyTrainer& trainer, int rank) {
      ShardedOptimizer& optimizer = trainer.optimizer();
      const auto look = [&] {
        if (!looks) return;
        const Evaluation evaluation = optimizer.evaluation();
        if (rank == 1) return;
        for (std::size_t u = rank == 0 ? 0 : 3; u < trainer.units().size(); ++u) {
          const Gathered weights = trainer.units()[u].gather();
          EXPECT_NE(weights.data<float>(trainer.parameters_of(trainer.units()[u])[0]), nullptr);
        }
      };
      look();
      const std::uint64_t after = optimizer.digest();
      look();
      const auto read = optimizer.read(optimizer.parameter("h.1.w"), "exp_avg");
      EXPECT_EQ(read.size(), 24u * 25);
      look();
      trainer.step();
      look();
      optimizer.relayout();
      look();
      look();
      trainer.step();
      const std::uint64_t digest = optimizer.digest();
      if (rank == 0) digests.insert(digests.end(), {after, digest});
    });
  }
  EXPECT_EQ(digests[0], digests[2]);
  EXPECT_EQ(digests[1], digests[3]);
}

// A barrier of the trainer's own after an uneven evaluation: nobody is left in a gather.
TEST_P(Looking, EndsBeforeACollectiveOfTheTrainers) {
  const WithTimeout timeout(std::chrono::seconds(20));
  on_ranks(DType::f32, [&](TinyTrainer& trainer, int rank) {
    Evaluation evaluation = trainer.optimizer().evaluation();
    for (std::size_t u = 0; rank == 0 && u < trainer.units().size(); ++u) {
      const Gathered weights = trainer.units()[u].gather();
    }
    evaluation.end();
    evaluation.end();
    trainer.process_group().barrier();
    trainer.step();
  });
}

TEST_P(Looking, TwiceWithoutAGatherIsNothing) {
  on_ranks(DType::f32, [](TinyTrainer& trainer, int) {
    { const Evaluation evaluation = trainer.optimizer().evaluation(); }
    { const Evaluation evaluation = trainer.optimizer().evaluation(); }
    trainer.step();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Stages, Looking, testing::ValuesIn([] {
      std::vector<Setting> settings;
      for (const int stage : {0, 1, 2, 3}) {
        for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams})
          settings.push_back({stage, mode});
      }
      return settings;
    }()));

TEST(Read, OfStateThatTheRuleDoesNotHaveIsEmpty) {
  with_ranks(2, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = 3}, .rule = SGD{}});
    const Parameter p = trainer.optimizer().parameters()[0];
    EXPECT_TRUE(trainer.optimizer().read(p, "exp_avg").empty());
    EXPECT_EQ(trainer.optimizer().read(p, "master"), trainer.optimizer().read(p, "parameter"));
  });
}

}  // namespace
}  // namespace ration::test
