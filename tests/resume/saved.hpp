#pragma once
// What the tests of saving and loading share: trainers that save at one world size and load at
// another.

#include <string>

#include "engine/engine_test.hpp"
#include "support/folder.hpp"
#include "support/throws.hpp"

namespace ration::test {

/// Gradients that do not depend on the number of ranks: their mean is the same at every world size,
/// up to rounding.
inline TinyTrainer::Options resumable(int stage, const Config& config = {}) {
  TinyTrainer::Options options;
  options.config = config;
  options.config.stage = stage;
  return options;
}

/// Trains `steps` steps at `ranks` and saves; what was saved, bit by bit.
inline Snapshot train_and_save(int ranks, int steps, const TinyTrainer::Options& options,
                               const std::string& root, const SaveOptions& save = {}) {
  Snapshot saved;
  with_ranks(ranks, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    for (int i = 0; i < steps; ++i) trainer.step();
    trainer.optimizer().save(root, save);
    const Snapshot mine = snapshot_of(trainer.optimizer());
    if (group.rank() == 0) saved = mine;
  });
  return saved;
}

/// Runs `body` at `ranks` with an optimizer that was loaded instead of initialized.
inline void with_loaded(int ranks, TinyTrainer::Options options, const std::string& root,
                        const std::function<void(TinyTrainer&, const LoadReport&)>& body,
                        const LoadOptions& load = {}) {
  options.initialize = false;
  with_ranks(ranks, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    const LoadReport report = trainer.optimizer().load(root, load);
    trainer.set_steps(static_cast<int>(report.step));
    body(trainer, report);
  });
}

}  // namespace ration::test
