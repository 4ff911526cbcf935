// Stopping and going on is as if never having stopped; and what a load refuses.

#include <fstream>

#include "saved.hpp"
#include "support/deadline.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Resume, EqualsNeverHavingStopped) {
  for (const auto& precision :
       {Precision::fp32(), Precision::bf16(),
        Precision{.parameter = DType::bf16, .master = Master::split, .moments = DType::bf16}}) {
    for (const int before : {0, 1, 2, 3}) {
      const int after = 3 - before;
      SCOPED_TRACE(fmt::format("stage {} to {}", before, after));
      Config config;
      config.precision = precision;
      const std::uint64_t expected = train(4, 7, resumable(before, config));
      const Folder folder;
      train_and_save(4, 4, resumable(before, config), folder.path());
      with_loaded(4, resumable(after, config), folder.path(),
                  [&](TinyTrainer& trainer, const LoadReport& report) {
                    EXPECT_EQ(report.step, 4);
                    for (int i = 0; i < 3; ++i) trainer.step();
                    EXPECT_EQ(trainer.optimizer().digest(), expected);
                  });
    }
  }
}

TEST(Resume, OfARunningOptimizerGoesBack) {
  for (const int stage : {0, 1, 2, 3}) {
    const Folder folder;
    with_ranks(3, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, resumable(stage));
      for (int i = 0; i < 2; ++i) trainer.step();
      trainer.optimizer().save(folder.path());
      const Snapshot saved = snapshot_of(trainer.optimizer());
      trainer.step();
      const Snapshot later = snapshot_of(trainer.optimizer());
      trainer.optimizer().load(folder.path());
      trainer.set_steps(2);
      EXPECT_EQ(snapshot_of(trainer.optimizer()), saved);
      trainer.step();
      EXPECT_EQ(snapshot_of(trainer.optimizer()), later);
    });
  }
}

TEST(Resume, BringsBackRatesScaleStepsAndTheTrainersOwnData) {
  const Folder folder;
  TinyTrainer::Options options = resumable(2);
  options.config.loss_scale = {.initial = 8, .dynamic = true, .growth_interval = 2};
  const Extra extra = {{"sampler", "epoch 3, place 17"}, {"random state", {"\0\xff\x80z", 4}}};
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    for (int i = 0; i < 3; ++i) trainer.step();
    trainer.group().set_learning_rate(0.125);
    trainer.optimizer().save(folder.path(), {.step = 1200, .extra = extra});
  });
  options.rule = AdamW{.learning_rate = 0.5, .beta1 = 0.5};
  with_loaded(3, options, folder.path(), [&](TinyTrainer& trainer, const LoadReport& report) {
    EXPECT_EQ(report.step, 1200);
    EXPECT_EQ(report.world, 2);
    EXPECT_EQ(report.extra, extra);
    EXPECT_EQ(report.folder, folder / "step-00001200");
    EXPECT_EQ(trainer.group().learning_rate(), 0.125);
    EXPECT_EQ(std::get<AdamW>(trainer.group().rule()).beta1, 0.9);
    EXPECT_EQ(trainer.optimizer().loss_scale(), 16);
    EXPECT_EQ(trainer.optimizer().step_count(trainer.optimizer().parameter("wte")), 3);
    trainer.set_steps(3);
    EXPECT_EQ(trainer.step().step, 4);
    EXPECT_EQ(trainer.optimizer().loss_scale(), 32);  // the second good step since it grew
  });
}

TEST(Resume, ParametersOnlyStartsATrainingOfItsOwn) {
  const Folder folder;
  const Snapshot saved = train_and_save(2, 3, resumable(1), folder.path());
  TinyTrainer::Options options = resumable(3);
  options.rule = Adagrad{.learning_rate = 0.5, .initial_accumulator = 0.25};
  with_loaded(2, options, folder.path(),
              [&](TinyTrainer& trainer, const LoadReport&) {
                ShardedOptimizer& optimizer = trainer.optimizer();
                for (const Parameter& parameter : optimizer.parameters()) {
                  const std::string key = parameter.name() + "/parameter";
                  EXPECT_EQ(snapshot_of(optimizer, parameter.name()).bits.at(key),
                            saved.bits.at(key));
                  EXPECT_EQ(optimizer.step_count(parameter), 0);
                  EXPECT_THAT(optimizer.read(parameter, "sum"), Each(0.25f));
                }
                EXPECT_EQ(trainer.group().learning_rate(), 0.5);
                EXPECT_EQ(trainer.step().step, 1);
              },
              {.parameters_only = true});
}

TEST(Resume, RefusesAnotherRuleAndNamesTheParameter) {
  const Folder folder;
  train_and_save(2, 1, resumable(1), folder.path());
  TinyTrainer::Options options = resumable(1);
  options.rule = SGD{.momentum = 0.9};
  options.initialize = false;
  EXPECT_THAT(thrown_on_all<InvalidArgument>(2,
                                             [&](const ProcessGroup& group) {
                                               TinyTrainer trainer(group, options);
                                               trainer.optimizer().load(folder.path());
                                             }),
              Each(AllOf(HasSubstr("\"wte\" is updated by SGD"), HasSubstr("by AdamW"))));
}

// Of twelve ranks most have no part of a small parameter: they are told.
TEST(Resume, RefusesStatesThatWereNotSavedOnAllRanks) {
  const Folder folder;
  TinyTrainer::Options options = resumable(1);
  options.rule = SGD{};
  train_and_save(2, 1, options, folder.path());
  options.rule = SGD{.momentum = 0.9};
  options.initialize = false;
  EXPECT_THAT(thrown_on_all<InvalidArgument>(12,
                                             [&](const ProcessGroup& group) {
                                               TinyTrainer trainer(group, options);
                                               trainer.optimizer().load(folder.path());
                                             }),
              Each(AllOf(HasSubstr("rank 0: "), HasSubstr("has no \"momentum_buffer\""))));
}

TEST(Resume, NamesParametersThatAreMissingUnexpectedOrOfAnotherShape) {
  const Folder folder;
  train_and_save(2, 1, resumable(1), folder.path());
  const auto text_with = [&](const std::vector<TinyUnit>& model) {
    TinyTrainer::Options options = resumable(2);
    options.model = model;
    const auto texts = thrown_on_all<InvalidArgument>(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, options);
      const Snapshot before = snapshot_of(trainer.optimizer());
      try {
        trainer.optimizer().load(folder.path());
      } catch (...) {
        EXPECT_EQ(snapshot_of(trainer.optimizer()), before);  // and it goes on
        trainer.step();
        throw;
      }
    });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  };
  auto model = tiny_model();
  model[1].parameters[0].second = {24, 23};
  EXPECT_THAT(text_with(model),
              AllOf(HasSubstr("\"h.0.w\" has shape [24, 23]"), HasSubstr("it has [24, 24]")));
  model = tiny_model();
  model[1].parameters.emplace_back("h.0.new", std::vector<std::int64_t>{3});
  EXPECT_THAT(text_with(model), HasSubstr("parameter \"h.0.new\" (1 in all) is not in"));
  model = tiny_model();
  model[1].parameters.pop_back();
  EXPECT_THAT(text_with(model),
              HasSubstr("has parameter \"h.0.none\" (1 in all), which is unknown"));
}

TEST(Resume, WhatIsMissingKeepsItsValuesWhenThatIsAllowed) {
  const Folder folder;
  train_and_save(2, 2, resumable(1), folder.path());
  TinyTrainer::Options options = resumable(2);
  options.model[1].parameters.back() = {"h.0.new", {7}};  // in place of h.0.none
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    const auto before =
        trainer.optimizer().read(trainer.optimizer().parameter("h.0.new"), "parameter");
    const LoadReport report =
        trainer.optimizer().load(folder.path(), {.allow_missing = true, .allow_unexpected = true});
    EXPECT_THAT(report.missing, ElementsAre("h.0.new"));
    EXPECT_THAT(report.unexpected, ElementsAre("h.0.none"));
    EXPECT_EQ(trainer.optimizer().read(trainer.optimizer().parameter("h.0.new"), "parameter"),
              before);
    EXPECT_EQ(trainer.optimizer().step_count(trainer.optimizer().parameter("h.0.new")), 0);
    EXPECT_EQ(trainer.optimizer().step_count(trainer.optimizer().parameter("h.0.w")), 2);
  });
}

TEST(Resume, SavingWhatWasJustSavedDoesNothing) {
  const Folder folder;
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, resumable(1));
    trainer.step();
    const SaveReport first = trainer.optimizer().save(folder.path());
    const SaveReport second = trainer.optimizer().save(folder.path());
    EXPECT_FALSE(first.already_saved);
    EXPECT_TRUE(second.already_saved);
    EXPECT_EQ(first.folder, second.folder);
    EXPECT_EQ(first.bytes, second.bytes);
    trainer.optimizer().load(folder.path());
    const SaveReport third = trainer.optimizer().save(folder.path());
    EXPECT_EQ(third.folder, first.folder + "-r2");
    EXPECT_EQ(checkpoint::find_latest(folder.path()), third.folder);
  });
}

TEST(Resume, SeveralOptimizersAreOneStep) {
  const Folder folder;
  Snapshot saved[2];
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer actor(group, resumable(3));
    TinyTrainer critic(group, resumable(1));
    for (int i = 0; i < 2; ++i) actor.step();
    critic.step();
    checkpoint::save(folder.path(),
                     {{"actor", &actor.optimizer()}, {"critic", &critic.optimizer()}}, {.step = 5});
    const Snapshot a = snapshot_of(actor.optimizer());
    const Snapshot c = snapshot_of(critic.optimizer());
    EXPECT_FALSE(a == c);
    if (group.rank() == 0) saved[0] = a, saved[1] = c;
  });
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer::Options options = resumable(2);
    options.initialize = false;
    TinyTrainer actor(group, options);
    TinyTrainer critic(group, options);
    checkpoint::load(folder.path(),
                     {{"actor", &actor.optimizer()}, {"critic", &critic.optimizer()}});
    EXPECT_EQ(snapshot_of(actor.optimizer()), saved[0]);
    EXPECT_EQ(snapshot_of(critic.optimizer()), saved[1]);
  });
}

// Whoever steps waits for gradients, who saves for a header: within the deadline they are told.
TEST(Resume, SaveAndStepAtOnceIsAnErrorOnAll) {
  const Folder folder;
  const WithTimeout timeout(std::chrono::milliseconds(300));
  const auto ends = outcomes(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, resumable(1));
    trainer.step();
    group.rank() == 1 ? (void)trainer.step() : (void)trainer.optimizer().save(folder.path());
  });
  for (const Outcome& end : ends) EXPECT_NE(end.kind, Outcome::Kind::fine);
  EXPECT_EQ(checkpoint::find_latest(folder.path()), std::nullopt);
}

TEST(Resume, OfNothingSaysSo) {
  const Folder folder;
  const auto texts = thrown_on_all<InvalidArgument>(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, resumable(1));
    trainer.optimizer().load(folder.path());
  });
  EXPECT_THAT(texts, Each(HasSubstr("there is no checkpoint in this folder")));
}

TEST(Resume, AfterAnExceptionInTheMiddleOfAStep) {
  for (const int stage : {1, 3}) {
    const Folder folder;
    const std::uint64_t expected = train(3, 4, resumable(stage));
    with_ranks(3, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, resumable(stage));
      for (int i = 0; i < 2; ++i) trainer.step();
      trainer.optimizer().save(folder.path());
      try {
        trainer.optimizer().micro_step();
        const Gathered weights = trainer.units()[1].gather();
        if (group.rank() == 1) throw std::runtime_error("out of data");
      } catch (const std::runtime_error&) {
        EXPECT_THAT(error_of<Error>([&] { trainer.step(); }), HasSubstr("load a checkpoint"));
      }
      trainer.optimizer().load(folder.path());
      trainer.set_steps(2);
      for (int i = 0; i < 2; ++i) trainer.step();
      EXPECT_EQ(trainer.optimizer().digest(), expected);
    });
  }
}

// One block is spoiled: some rank finds it half way through, all throw, none goes on.
TEST(Resume, FromADamagedShardLeavesNoValues) {
  const Folder folder;
  train_and_save(3, 2, resumable(2), folder.path());
  const Folder good;
  const std::uint64_t expected = train(3, 4, resumable(2));
  train_and_save(3, 2, resumable(2), good.path());
  const auto shard = folder / "step-00000002" / "rank-00001-of-00003.h5";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(8192);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(8192);
    file.put(byte);
  }
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, resumable(2));
    EXPECT_THAT(thrown<CorruptCheckpoint>([&] { trainer.optimizer().load(folder.path()); }),
                HasSubstr("rank-00001-of-00003.h5"));
    EXPECT_THAT(thrown<Error>([&] { trainer.step(); }), HasSubstr("a load of"));
    trainer.optimizer().load(good.path());
    trainer.set_steps(2);
    for (int i = 0; i < 2; ++i) trainer.step();
    EXPECT_EQ(trainer.optimizer().digest(), expected);
  });
}

}  // namespace
}  // namespace ration::test
