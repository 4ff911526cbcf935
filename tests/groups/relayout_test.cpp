// Units and groups that come after training has begun.

#include "model.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<Entry> kFirst = {{"w", {9, 7}}, {"b", {7}}};

TEST(Relayout, KeepsOldStateBitForBitAndStartsNew) {
  std::vector<std::vector<std::vector<float>>> by_stage(4);
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {AdamW{.learning_rate = 0.1}}, kFirst);
      for (int i = 0; i < 3; ++i) model.step();
      const auto before = everything(model);
      model.groups.push_back(model.optimizer.add_group(AdamW{.learning_rate = 0.2}));
      model.add_unit("late", {{"late.w", {13, 3}, 1}, {"late.b", {1}, 0}});
      model.optimizer.relayout(constant(0.5f));
      auto after = everything(model);
      ASSERT_EQ(after.size(), 2 * before.size());
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i]);
      EXPECT_THAT(model.read("late.w"), testing::Each(0.5f));
      EXPECT_THAT(model.read("late.w", "exp_avg_sq"), testing::Each(0.0f));
      EXPECT_EQ(model.optimizer.step_count(model.optimizer.parameter("late.w")), 0);
      EXPECT_EQ(model.optimizer.step_count(model.optimizer.parameter("w")), 3);

      EXPECT_EQ(model.step().step, 4);
      model.step();
      EXPECT_EQ(model.optimizer.step_count(model.optimizer.parameter("late.w")), 2);
      const auto trained = everything(model);
      if (group.rank() == 0) by_stage[static_cast<std::size_t>(stage)] = trained;
    });
  }
  for (const int stage : {1, 2, 3})
    EXPECT_EQ(by_stage[static_cast<std::size_t>(stage)], by_stage[0]);
}

TEST(Relayout, KeepsMastersAndMomentsOfEveryPrecision) {
  for (const Master master : {Master::fp32, Master::split}) {
    for (const int stage : {0, 3}) {
      const auto digest = [&](bool relayout) {
        std::uint64_t result = 0;
        with_ranks(3, [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, {.config = {.stage = stage,
                                                 .precision = {.parameter = DType::bf16,
                                                               .master = master,
                                                               .moments = DType::bf16}}});
          for (int i = 0; i < 4; ++i) {
            if (relayout) trainer.optimizer().relayout();
            trainer.step();
          }
          const std::uint64_t mine = trainer.optimizer().digest();
          if (group.rank() == 0) result = mine;
        });
        return result;
      };
      EXPECT_EQ(digest(true), digest(false)) << "stage " << stage;
    }
  }
}

TEST(Relayout, MustComeBeforeANewUnitIsUsed) {
  for (const int stage : {0, 3}) {
    with_ranks(2, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {AdamW{}}, kFirst);
      const Unit old = model.units[0];
      const MicroStep micro = model.optimizer.micro_step();
      micro.begin_backward();
      model.add_unit("late", {{"late.w", {3}}});
      const Unit late = model.units[1];
      const auto advice = AllOf(HasSubstr("\"late\""), HasSubstr("call relayout"));
      EXPECT_THAT(thrown<InvalidArgument>([&] { (void)late.gather(); }), advice);
      EXPECT_THAT(thrown<InvalidArgument>([&] { (void)late.gradient<float>(late["late.w"]); }),
                  advice);
      EXPECT_THAT(thrown<InvalidArgument>([&] { late.gradients_ready(); }), advice);
      EXPECT_THAT(thrown<InvalidArgument>([&] { late.gradient_ready(late["late.w"]); }), advice);
      (void)old.gradient<float>(old["w"]);
      old.gradients_ready();
      model.optimizer.step();
      EXPECT_THAT(thrown<InvalidArgument>([&] { model.optimizer.micro_step(); }),
                  HasSubstr("call relayout"));
      EXPECT_THAT(thrown<InvalidArgument>([&] { model.read("late.w"); }), advice);
      const Whole whole = model.optimizer.gather_all();
      EXPECT_THAT(thrown<InvalidArgument>([&] { (void)whole.bytes(late["late.w"]); }),
                  HasSubstr("\"late.w\""));
      model.optimizer.relayout();
      EXPECT_FALSE(model.step().skipped);
    });
  }
}

TEST(Relayout, IsRefusedInAStepAndInAnEvaluation) {
  with_ranks(2, [](const ProcessGroup& group) {
    GroupedModel model(group, {.stage = 3}, {AdamW{}}, kFirst);
    {
      const Evaluation evaluation = model.optimizer.evaluation();
      EXPECT_THAT(thrown<InvalidArgument>([&] { model.optimizer.relayout(); }),
                  HasSubstr("relayout in the middle of an evaluation"));
    }
    model.optimizer.micro_step();
    EXPECT_THAT(thrown<InvalidArgument>([&] { model.optimizer.relayout(); }),
                HasSubstr("relayout in the middle of a step"));
    model.optimizer.step();
  });
}

TEST(Relayout, ThatDiffersOnOneRankIsRefusedByAllAndChangesNothing) {
  with_ranks(3, [](const ProcessGroup& group) {
    GroupedModel model(group, {.stage = 3}, {AdamW{.learning_rate = 0.1}}, kFirst);
    model.step();
    const Parameter b = model.optimizer.parameter("b");
    model.optimizer.set_trainable(b, false);
    const std::vector<float> before = model.read("b");
    const Parameter w = model.optimizer.parameter("w");
    if (group.rank() == 1) model.optimizer.set_trainable(w, false);
    EXPECT_THAT(thrown<InvalidArgument>([&] { model.optimizer.relayout(); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("\"w\""), HasSubstr("trainable")));
    if (group.rank() == 1) model.optimizer.set_trainable(w, true);
    const MicroStep micro = model.optimizer.micro_step();
    micro.begin_backward();
    EXPECT_THAT(thrown<InvalidArgument>([&] { (void)model.units[0].gradient<float>(b); }),
                AllOf(HasSubstr("\"b\""), HasSubstr("frozen")))
        << "still masked";
    EXPECT_FALSE(model.optimizer.step().skipped);
    EXPECT_EQ(model.read("b"), before);
    EXPECT_EQ(model.optimizer.step_count(b), 1);
  });
}

TEST(Relayout, ThatCannotBeIsRefusedBeforeAnythingIsGivenUp) {
  const auto rule = [](const std::string& name) {
    return CustomRule{.name = name,
                      .state = {name + ".0", name + ".1", name + ".2"},
                      .update = [](const RuleRun&) {}};
  };
  with_ranks(2, [&](const ProcessGroup& group) {
    GroupedModel model(group, {.stage = 2}, {AdamW{}, rule("x"), rule("y")}, kFirst);
    model.step();
    const auto before = everything(model);
    model.add_unit("late", {{"late.x", {3}, 1}, {"late.y", {3}, 2}});
    EXPECT_THAT(
        thrown<InvalidArgument>([&] { model.optimizer.relayout(); }),
        AllOf(HasSubstr("\"late\""), HasSubstr("6 kinds of state"), HasSubstr("at most 4")));
    auto after = before;
    for (std::size_t i = 0; i < 2; ++i) {
      const Parameter p = model.optimizer.parameters()[i];
      EXPECT_EQ(model.optimizer.read(p, "parameter"), before[5 * i]);
      EXPECT_EQ(model.optimizer.read(p, "exp_avg"), before[5 * i + 2]);
    }
  });
}

}  // namespace
}  // namespace ration::test
