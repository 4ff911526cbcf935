// Saves beside the training: what is saved is what was there at the call, and what goes wrong is
// heard by all ranks in one and the same step.

#include <fstream>

#include "saved.hpp"

namespace ration::test {
namespace {

using testing::Each;
using testing::HasSubstr;

TinyTrainer::Options beside(int stage) {
  Config config;
  config.asynchronous_save = true;
  return resumable(stage, config);
}

TEST(AsynchronousSave, HoldsWhatWasThereAtTheCall) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const Master master : {Master::fp32, Master::split}) {
      const Folder folder;
      TinyTrainer::Options options = beside(stage);
      options.config.precision = {.parameter = DType::bf16, .master = master};
      Snapshot saved;
      const std::uint64_t undisturbed = train(3, 6, options);
      with_ranks(3, [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options);
        for (int i = 0; i < 2; ++i) trainer.step();
        const Snapshot then = snapshot_of(trainer.optimizer());
        EXPECT_EQ(trainer.optimizer().save(folder.path(), {.asynchronous = true}).folder, "");
        for (int i = 0; i < 4; ++i) trainer.step();
        const SaveReport report = trainer.optimizer().wait_saved();
        EXPECT_EQ(report.folder, folder / "step-00000002");
        EXPECT_EQ(trainer.optimizer().digest(), undisturbed);
        if (group.rank() == 0) saved = then;
      });
      with_loaded(2, resumable(1, options.config), folder.path(),
                  [&](TinyTrainer& trainer, const LoadReport&) {
                    EXPECT_EQ(snapshot_of(trainer.optimizer()), saved);
                  });
    }
  }
}

TEST(AsynchronousSave, IsPlanned) {
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer with(group, beside(1));
    TinyTrainer without(group, resumable(1));
    const auto snapshot = static_cast<std::size_t>(MemoryKind::snapshot);
    EXPECT_EQ(without.optimizer().memory().allocated[snapshot], 0u);
    EXPECT_GT(with.optimizer().memory().allocated[snapshot], 0u);
    EXPECT_EQ(with.optimizer().memory().allocated, with.optimizer().memory().planned);
  });
}

TEST(AsynchronousSave, MustBeAskedForAtConstruction) {
  const Folder folder;
  const auto texts = thrown_on_all<InvalidArgument>(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, resumable(1));
    trainer.optimizer().save(folder.path(), {.asynchronous = true});
  });
  EXPECT_THAT(texts, Each(HasSubstr("Config::asynchronous_save")));
}

// Whose `extra` differ: rank 0's is what is saved, and what says whether it was saved before.
TEST(AsynchronousSave, OfWhatWasJustSavedDoesNothing) {
  const Folder folder;
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, beside(1));
    trainer.step();
    int call = 0;
    const auto save = [&](bool asynchronous) {
      const Extra extra = {{"rank's own", std::to_string(group.rank() == 0 ? 0 : ++call)}};
      trainer.optimizer().save(folder.path(), {.extra = extra, .asynchronous = asynchronous});
      return trainer.optimizer().wait_saved();
    };
    save(true);
    EXPECT_TRUE(save(true).already_saved);
    save(false);
  });
  EXPECT_EQ(checkpoint::find_latest(folder.path()), folder / "step-00000001");
}

TEST(AsynchronousSave, FiftyInARowKeepTheirOrder) {
  const Folder folder;
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, beside(2));
    for (int i = 0; i < 50; ++i) {
      trainer.step();
      trainer.optimizer().save(folder.path(), {.keep = 0, .asynchronous = true});
    }
    EXPECT_EQ(trainer.optimizer().wait_saved().step, 50);
  });
  for (int step = 1; step <= 50; ++step)
    EXPECT_TRUE(std::filesystem::exists(folder / fmt::format("step-{:08}", step)));
}

TEST(AsynchronousSave, IsFinishedWhenTheOptimizerIsGone) {
  const Folder folder;
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, beside(3));
    trainer.step();
    trainer.optimizer().save(folder.path(), {.asynchronous = true});
  });
  EXPECT_EQ(checkpoint::find_latest(folder.path()), folder / "step-00000001");
}

// The folder's name is taken by a file: no rank can save, and training goes on.
TEST(AsynchronousSave, ThatFailsIsThrownByAllRanksFromTheSameStep) {
  const Folder folder;
  std::ofstream(folder / "taken") << "a file";
  PerRank<std::int64_t> thrown_in(3);
  const std::uint64_t undisturbed = train(3, 1000, beside(2));
  with_ranks(3, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, beside(2));
    trainer.step();
    trainer.optimizer().save(folder / "taken", {.asynchronous = true});
    for (int step = 2; step <= 1000; ++step) {
      try {
        trainer.step();
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), HasSubstr("taken"));
        EXPECT_EQ(thrown_in[group], 0);
        thrown_in[group] = step;
      }
    }
    EXPECT_EQ(trainer.optimizer().wait_saved().folder, "");
    EXPECT_EQ(trainer.optimizer().digest(), undisturbed);  // the update of that step was done
  });
  EXPECT_TRUE(thrown_in.alike());
  EXPECT_GT(thrown_in.first(), 0);
}

TEST(AsynchronousSave, ThatFailsIsThrownByTheNextSaveAtTheLatest) {
  const Folder folder;
  std::ofstream(folder / "taken") << "a file";
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, beside(1));
    trainer.step();
    trainer.optimizer().save(folder / "taken", {.asynchronous = true});
    EXPECT_THAT(thrown<IoError>([&] { trainer.optimizer().save(folder.path()); }),
                HasSubstr("taken"));
    EXPECT_EQ(trainer.optimizer().save(folder.path()).folder, folder / "step-00000001");
  });
}

}  // namespace
}  // namespace ration::test
