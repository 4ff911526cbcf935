// A job that saves, to be killed and lied to while it does: ranks are threads (RANKS of them), or
// this process is one of several (RANK, WORLD_SIZE, ... as launchers set them).
//   save_program prepare ROOT    trains 2 steps, saves step 2
//   save_program save ROOT       loads, trains another, saves it: "saved STEP DIGEST", or an error
//   save_program check ROOT      loads the newest: "found STEP DIGEST"

#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "support/training.hpp"

namespace ration::test {
namespace {

void run(const World& world, const std::string& what, const std::string& root) {
  TinyTrainer::Options options;
  options.config.stage = 2;
  options.model.clear();
  for (int u = 0; u < 12; ++u) {
    const std::string name = fmt::format("h.{}", u);
    options.model.push_back({name, {{name + ".w", {40 + u, 9}}, {name + ".b", {33}}}});
  }
  options.initialize = what == "prepare";
  TinyTrainer trainer(world, options);
  ShardedOptimizer& optimizer = trainer.optimizer();
  if (what == "prepare") {
    trainer.step();
    trainer.step();
    optimizer.save(root);
    return;
  }
  const LoadReport loaded = optimizer.load(root);
  trainer.set_steps(static_cast<int>(loaded.step));
  if (what == "save") {
    trainer.step();
    const std::uint64_t digest = optimizer.digest();
    const SaveReport saved = optimizer.save(root);
    if (world.rank() == 0) fmt::print("saved {} {:016x}\n", saved.step, digest);
    return;
  }
  const std::uint64_t digest = optimizer.digest();
  if (world.rank() == 0) fmt::print("found {} {:016x}\n", loaded.step, digest);
}

}  // namespace
}  // namespace ration::test

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return ration::launch(1, argv,
                        [&](ration::World& world) { ration::test::run(world, argv[1], argv[2]); },
                        {.ranks = 4, .timeout = std::chrono::seconds(5)});
}
