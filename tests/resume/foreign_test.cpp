// Weights of other programs to start from.

#include "checkpoint/load.hpp"
#include "checkpoint/merge.hpp"
#include "saved.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// A run of two steps, its weights as one file.
std::string merged(const Folder& folder, const TinyTrainer::Options& options, const char* name) {
  train_and_save(2, 2, options, folder.path());
  const auto found = checkpoint::find(folder.path(), {});
  const std::string file = folder / name;
  checkpoint::merge(found.folder, checkpoint::read_manifest(found.folder), file, {});
  return file;
}

TEST(Foreign, WeightsAreWhereATrainingBegins) {
  for (const char* name : {"model.safetensors", "model.h5"}) {
    for (const int stage : {0, 1, 2, 3}) {
      const Folder folder;
      const std::string file = merged(folder, resumable(2), name);
      Snapshot saved;
      with_loaded(1, resumable(0), folder.path(), [&](TinyTrainer& trainer, const LoadReport&) {
        saved = snapshot_of(trainer.optimizer());
      });
      TinyTrainer::Options options = resumable(stage);
      for (const bool initialized : {false, true}) {
        options.initialize = initialized;
        with_ranks(3, [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          if (initialized) trainer.step();
          checkpoint::load_parameters(file, trainer.optimizer());
          for (const Parameter& p : trainer.optimizer().parameters()) {
            const Snapshot mine = snapshot_of(trainer.optimizer(), p.name());
            EXPECT_EQ(mine.bits.at(p.name() + "/parameter"),
                      saved.bits.at(p.name() + "/parameter"));
            EXPECT_EQ(mine.steps.at(p.name()), 0);
            EXPECT_THAT(trainer.optimizer().read(p, "exp_avg"), Each(0.0f));
          }
          EXPECT_EQ(trainer.step().step, 1);
        });
      }
    }
  }
}

TEST(Foreign, BecomeTheTypesOfTheModel) {
  const Folder folder;
  const std::string file = merged(folder, resumable(2), "model.safetensors");
  TinyTrainer::Options options = resumable(1);
  options.config.precision = Precision::bf16();
  options.initialize = false;
  Values wanted;
  with_loaded(1, resumable(0), folder.path(), [&](TinyTrainer& trainer, const LoadReport&) {
    wanted = values_of(trainer.optimizer());
  });
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    checkpoint::load_parameters(file, trainer.optimizer());
    EXPECT_EQ(values_of(trainer.optimizer(), "master"), wanted);
  });
}

TEST(Foreign, ThatDoNotFitAreRefusedOnAllRanks) {
  const Folder folder;
  const std::string file = merged(folder, resumable(2), "model.safetensors");
  const auto texts_with = [&](const std::vector<TinyUnit>& model, const std::string& from) {
    TinyTrainer::Options options = resumable(1);
    options.model = model;
    options.initialize = false;
    return thrown_on_all<InvalidArgument>(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, options);
      checkpoint::load_parameters(from, trainer.optimizer());
    });
  };
  auto model = tiny_model();
  model[0].parameters[0].second = {8, 37};
  EXPECT_THAT(texts_with(model, file),
              Each(AllOf(HasSubstr("\"wte\" has shape [8, 37]"), HasSubstr("it has [37, 8]"))));
  model = tiny_model();
  model[0].parameters[0].first = "other";
  EXPECT_THAT(texts_with(model, file), Each(HasSubstr("\"other\" (1 in all) is not in")));
  const auto manifest = folder / "step-00000002/manifest.json";
  EXPECT_THAT(texts_with(tiny_model(), manifest), Each(HasSubstr("manifest.json")));
}

TEST(Foreign, MayLackAndHoldMoreWhenThatIsAllowed) {
  const Folder folder;
  const std::string file = merged(folder, resumable(2), "model.h5");
  TinyTrainer::Options options = resumable(1);
  options.model[0].parameters[0].first = "other";
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    const auto before =
        trainer.optimizer().read(trainer.optimizer().parameter("other"), "parameter");
    const LoadReport report = checkpoint::load_parameters(
        file, trainer.optimizer(), {.allow_missing = true, .allow_unexpected = true});
    EXPECT_THAT(report.missing, ElementsAre("other"));
    EXPECT_THAT(report.unexpected, ElementsAre("wte"));
    EXPECT_EQ(trainer.optimizer().read(trainer.optimizer().parameter("other"), "parameter"),
              before);
  });
}

}  // namespace
}  // namespace ration::test
