// A guard that an exception destroyed: nothing can be trusted from there, and everything says so.

#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Broken, EveryLaterCallThrowsAndSaysWhy) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(1, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = stage}});
      ShardedOptimizer& o = trainer.optimizer();
      const Unit unit = trainer.units()[1];
      const Parameter p = unit["h.0.b"];
      const MicroStep micro = o.micro_step();
      try {
        const Gathered weights = unit.gather();
        throw std::runtime_error("in the forward");
      } catch (const std::runtime_error&) {
      }
      const std::vector<std::function<void()>> calls = {
          [&] { o.micro_step(); },
          [&] { micro.begin_backward(); },
          [&] { (void)unit.gather(); },
          [&] { (void)unit.gradient<float>(p); },
          [&] { unit.gradients_ready(); },
          [&] { unit.gradient_ready(p); },
          [&] { o.step(); },
          [&] { (void)o.reduce_gradients(); },
          [&] {
            Gradients gradients;
            o.apply(gradients);
          },
          [&] { ration::step(group, {&o}); },
          [&] { (void)o.evaluation(); },
          [&] { (void)o.gather_all(); },
          [&] { (void)o.read(p, "parameter"); },
          [&] { (void)o.digest(); },
          [&] { o.relayout(); },
          [&] { o.initialize(constant(0)); },
          [&] { o.initialize_from_data(); },
      };
      for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_THAT(thrown<Error>(calls[i]),
                    AllOf(HasSubstr("broken"), HasSubstr("exception destroyed the guard"),
                          HasSubstr("\"h.0\""), HasSubstr("rank 0")))
            << "stage " << stage << ", call " << i;
      }
    });
  }
}

TEST(Broken, AGuardThatWasReleasedInTimeIsNot) {
  with_ranks(1, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = 3}});
    try {
      const Evaluation evaluation = trainer.optimizer().evaluation();
      Gathered weights = trainer.units()[1].gather();
      weights.release();
      throw std::runtime_error("later");
    } catch (const std::runtime_error&) {
    }
    EXPECT_FALSE(trainer.step().skipped);
  });
}

// In a destructor that runs while another exception flies, whole and regular.
TEST(Broken, AGuardThatLivesAndEndsDuringAnotherExceptionIsNot) {
  with_ranks(1, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = 3}});
    struct Evaluates {
      TinyTrainer& trainer;
      ~Evaluates() {
        const Evaluation evaluation = trainer.optimizer().evaluation();
        const Gathered weights = trainer.units()[1].gather();
      }
    };
    try {
      const Evaluates last{trainer};
      throw std::runtime_error("elsewhere");
    } catch (const std::runtime_error&) {
    }
    EXPECT_FALSE(trainer.step().skipped);
  });
}

TEST(Broken, AnotherOptimizerIsNot) {
  with_ranks(1, [](const ProcessGroup& group) {
    TinyTrainer broken(group, {.config = {.stage = 3}});
    TinyTrainer sound(group, {.config = {.stage = 3}});
    try {
      const Evaluation evaluation = broken.optimizer().evaluation();
      const Gathered weights = broken.units()[1].gather();
      throw std::runtime_error("here");
    } catch (const std::runtime_error&) {
    }
    EXPECT_THAT(thrown<Error>([&] { broken.step(); }), HasSubstr("make a new one"));
    EXPECT_FALSE(sound.step().skipped);
  });
}

}  // namespace
}  // namespace ration::test
