// Several optimizers in one process, after one another and at once.

#include <optional>

#include "support/throws.hpp"

namespace ration::test {
namespace {

TEST(Several, AfterOneAnotherAreIndependent) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      std::vector<std::uint64_t> digests;
      for (int i = 0; i < 3; ++i) {
        TinyTrainer trainer(group, {.config = {.stage = stage}});
        trainer.step();
        trainer.step();
        digests.push_back(trainer.optimizer().digest());
      }
      EXPECT_THAT(digests, testing::Each(digests[0])) << "stage " << stage;
    });
  }
}

TEST(Several, AtOnceAreIndependent) {
  const TinyTrainer::Options a{.config = {.stage = 3}, .rule = AdamW{.learning_rate = 0.1}};
  const TinyTrainer::Options b{.config = {.stage = 2, .precision = Precision::bf16()},
                               .rule = Lion{.learning_rate = 0.01}};
  const std::uint64_t alone_a = train(3, 3, a);
  const std::uint64_t alone_b = train(3, 3, b);
  for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
    with_ranks(3,
               [&](const ProcessGroup& group) {
                 TinyTrainer first(group, a);
                 TinyTrainer second(group, b);
                 for (int i = 0; i < 3; ++i) {
                   first.step();
                   second.step();
                 }
                 EXPECT_EQ(first.optimizer().digest(), alone_a);
                 EXPECT_EQ(second.optimizer().digest(), alone_b);
               },
               {.mode = mode});
  }
}

// Their passes interleave: a generator and a critic.
TEST(Several, InterleavedAreIndependent) {
  const TinyTrainer::Options options{.config = {.stage = 3}};
  const std::uint64_t alone = train(2, 2, options);
  for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
    with_ranks(2,
               [&](const ProcessGroup& group) {
                 TinyTrainer first(group, options);
                 TinyTrainer second(group, options);
                 first.step();
                 second.step();
                 const MicroStep one = first.optimizer().micro_step();
                 const MicroStep two = second.optimizer().micro_step();
                 for (std::size_t u = 0; u < first.units().size(); ++u) {
                   const Gathered x = first.units()[u].gather();
                   const Gathered y = second.units()[u].gather();
                 }
                 one.begin_backward();
                 two.begin_backward();
                 for (std::size_t u = first.units().size(); u-- > 0;) {
                   first.backward(first.units()[u], 0);
                   second.backward(second.units()[u], 0);
                 }
                 first.optimizer().step();
                 second.optimizer().step();
                 EXPECT_EQ(first.optimizer().digest(), alone);
                 EXPECT_EQ(second.optimizer().digest(), alone);
               },
               {.mode = mode});
  }
}

TEST(Several, OverPartsOfAGroupAreIndependent) {
  const TinyTrainer::Options options{.config = {.stage = 3}};
  const std::uint64_t alone = train(2, 2, options);
  with_ranks(4, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group.split(group.rank() % 2), options);
    trainer.step();
    trainer.step();
    EXPECT_EQ(trainer.optimizer().digest(), alone);
  });
}

TEST(Several, AnOptimizerThatWasMovedGoesOn) {
  with_ranks(2, [](const ProcessGroup& group) {
    ShardedOptimizer first(group, {.stage = 3});
    Group decayed = first.add_group(SGD{.learning_rate = 1.0});
    const Unit unit = first.add_unit("u", {{.name = "w", .shape = {5}}});
    const Parameter w = unit["w"];
    ShardedOptimizer second(std::move(first));
    second.initialize(constant(3));
    decayed.set_learning_rate(0.5);
    const MicroStep micro = second.micro_step();
    micro.begin_backward();
    std::fill_n(unit.gradient<float>(w), 5, 2.0f);
    unit.gradients_ready();
    second.step();
    EXPECT_THAT(second.read(w, "parameter"), testing::Each(2.0f));
  });
}

// Reduces are in flight when rank 0's optimizer ends: rank 1 has yet to come to them.
TEST(Several, OneThatEndsInTheMiddleOfAStepLeavesTheOthersAlone) {
  for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
    with_ranks(2,
               [](const ProcessGroup& group) {
                 for (int i = 0; i < 5; ++i) {
                   std::optional<TinyTrainer> trainer;
                   trainer.emplace(group,
                                   TinyTrainer::Options{.config = {.stage = 3, .buckets = 5}});
                   const MicroStep micro = trainer->optimizer().micro_step();
                   micro.begin_backward();
                   if (group.rank() == 1) group.barrier();
                   for (std::size_t u = 5; u-- > 0;) {
                     const Unit& unit = trainer->units()[u];
                     for (const Parameter& p : trainer->parameters_of(unit))
                       (void)unit.gradient<float>(p);
                     unit.gradients_ready();
                   }
                   if (group.rank() == 0) group.barrier();
                   trainer.reset();
                 }
                 TinyTrainer trainer(group, {.config = {.stage = 3}});
                 EXPECT_FALSE(trainer.step().skipped);
               },
               {.mode = mode});
  }
}

}  // namespace
}  // namespace ration::test
