// Options changed between steps, on all ranks and on one.

#include "model.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<Entry> kTwoEntries = {{"w", {9, 7}, 0}, {"b", {7}, 1}};
const std::vector<Rule> kRules = {AdamW{.learning_rate = 0.1}, AdamW{.learning_rate = 0.2}};

TEST(LearningRate, ChangedBetweenStepsIsFollowed) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(2, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, {SGD{.learning_rate = 0.5}, SGD{}}, kTwoEntries);
      for (const double rate : {0.5, 0.25, 0.0}) {
        model.groups[0].set_learning_rate(rate);
        EXPECT_EQ(model.groups[0].learning_rate(), rate);
        const std::vector<float> before = model.read("w");
        model.step();
        const std::vector<float> after = model.read("w");
        for (std::size_t i = 0; i < after.size(); ++i) {
          const double mean = (static_cast<double>(gradient_at(model.steps - 1, 0, 0, i)) +
                               static_cast<double>(gradient_at(model.steps - 1, 1, 0, i))) /
                              2;
          EXPECT_NEAR(after[i], before[i] - rate * mean, 1e-7) << "stage " << stage;
        }
      }
    });
  }
}

// What happens on one rank only is an error on all, changes nothing, and can be mended.
void expect_refused_and_mended(const std::function<void(GroupedModel&)>& change,
                               const std::function<void(GroupedModel&)>& mend,
                               const testing::Matcher<std::string>& text) {
  for (const int stage : {0, 1, 2, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, kRules, kTwoEntries);
      GroupedModel undisturbed(group, {.stage = stage}, kRules, kTwoEntries);
      model.step();
      const auto before = everything(model);
      if (group.rank() == 1) change(model);
      EXPECT_THAT(thrown<InvalidArgument>([&] { model.step(); }), text) << "stage " << stage;
      EXPECT_EQ(everything(model), before) << "stage " << stage;
      if (group.rank() == 1) mend(model);
      model.steps = 1;
      model.step();
      undisturbed.step();
      undisturbed.step();
      EXPECT_EQ(everything(model), everything(undisturbed)) << "stage " << stage;
    });
  }
}

TEST(LearningRate, ChangedOnOneRankIsRefusedByAllAndCanBeMended) {
  expect_refused_and_mended([](GroupedModel& m) { m.groups[1].set_learning_rate(0.3); },
                            [](GroupedModel& m) { m.groups[1].set_learning_rate(0.2); },
                            AllOf(HasSubstr("rank 1"), HasSubstr("learning rate of group 1"),
                                  HasSubstr("0.3"), HasSubstr("0.2")));
}

TEST(LearningRate, RefusesWhatIsNoRate) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {});
  Group group = optimizer.add_group(AdamW{.learning_rate = 0.1});
  for (const double rate : {-1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    EXPECT_THAT(thrown<InvalidArgument>([&] { group.set_learning_rate(rate); }),
                AllOf(HasSubstr("AdamW"), HasSubstr("learning_rate")));
    EXPECT_EQ(group.learning_rate(), 0.1);
  }
}

TEST(SetRule, ChangedOnOneRankIsRefusedByAllAndCanBeMended) {
  expect_refused_and_mended(
      [](GroupedModel& m) {
        m.groups[0].set_rule(AdamW{.learning_rate = 0.1, .weight_decay = 0.5});
      },
      [](GroupedModel& m) { m.groups[0].set_rule(AdamW{.learning_rate = 0.1}); },
      AllOf(HasSubstr("rank 1"), HasSubstr("rules")));
}

TEST(SetRule, IsFollowed) {
  with_ranks(2, [](const ProcessGroup& group) {
    GroupedModel model(group, {.stage = 3}, kRules, kTwoEntries);
    GroupedModel other(group, {.stage = 3},
                       {AdamW{.learning_rate = 0.1, .beta1 = 0.5, .weight_decay = 0.3}, kRules[1]},
                       kTwoEntries);
    model.groups[0].set_rule(AdamW{.learning_rate = 0.1, .beta1 = 0.5, .weight_decay = 0.3});
    model.step();
    other.step();
    EXPECT_EQ(everything(model), everything(other));
  });
}

TEST(SetRule, KeepsTheKindOfRuleAndItsState) {
  ShardedOptimizer optimizer(ProcessGroup(make_threads(1)[0]), {});
  Group adam = optimizer.add_group(AdamW{});
  Group sgd = optimizer.add_group(SGD{.momentum = 0.9});
  EXPECT_THAT(thrown<InvalidArgument>([&] { adam.set_rule(Adam{}); }),
              AllOf(HasSubstr("group 0"), HasSubstr("is AdamW"), HasSubstr("become Adam")));
  EXPECT_THAT(thrown<InvalidArgument>([&] { sgd.set_rule(SGD{}); }),
              AllOf(HasSubstr("group 1"), HasSubstr("other state"), HasSubstr("add a group")));
  EXPECT_THAT(thrown<InvalidArgument>([&] { adam.set_rule(AdamW{.beta1 = 1.0}); }),
              HasSubstr("beta1"));
  EXPECT_EQ(std::get<SGD>(sgd.rule()).momentum, 0.9);
}

TEST(SetTrainable, OnOneRankIsRefusedByAllAndCanBeMended) {
  const auto mask = [](bool trainable) {
    return [trainable](GroupedModel& m) {
      m.optimizer.set_trainable(m.optimizer.parameter("b"), trainable);
    };
  };
  for (const int stage : {1, 3}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      GroupedModel model(group, {.stage = stage}, kRules, kTwoEntries);
      model.step();
      const auto before = everything(model);
      if (group.rank() == 1) mask(false)(model);
      EXPECT_THAT(thrown<InvalidArgument>([&] { model.step({"b"}); }),
                  AllOf(HasSubstr("rank 1"), HasSubstr("trainable")));
      EXPECT_EQ(everything(model), before);
      if (group.rank() == 1) mask(true)(model);
      EXPECT_FALSE(model.step().skipped);
      EXPECT_NE(model.read("b"), before[5]);
    });
  }
}

TEST(ClipNorm, OnOneRankIsRefusedByAll) {
  const auto texts = thrown_on_all<InvalidArgument>(3, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.clip = group.rank() == 2 ? std::optional(0.5) : std::nullopt});
    trainer.step();
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 2"), HasSubstr("clip_norm is 0.5"),
                            HasSubstr("rank 0 has none")));
}

TEST(Metrics, OfDifferentNumberAreRefusedByAll) {
  const auto texts = thrown_on_all<InvalidArgument>(2, [](const ProcessGroup& group) {
    TinyTrainer trainer(group, {});
    trainer.optimizer().micro_step();
    trainer.optimizer().step(
        {.metrics = std::vector<double>(static_cast<std::size_t>(group.rank() + 1), 1.0)});
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("number of metrics is 2"),
                            HasSubstr("rank 0 has 1")));
}

}  // namespace
}  // namespace ration::test
