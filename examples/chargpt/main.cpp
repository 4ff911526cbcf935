// chargpt: a character-level GPT on real text, its model state sharded over ranks. The loop is
// `run`; what a micro-step does is in trainer.cpp.

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>

#include <ration/ration.hpp>

#include "options.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "text.hpp"
#include "trainer.hpp"

namespace chargpt {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const ration::World& world, const Options& options, const Text& text) {
  Trainer trainer(world, options, text);
  ration::ShardedOptimizer& optimizer = trainer.optimizer();

  const auto at_start = collect(world, rank_report(optimizer.memory(), {}, {}, 0));
  std::optional<Progress> progress;
  if (world.rank() == 0 && !options.quiet) {
    const auto& allocated = at_start[0].memory.allocated;
    progress.emplace(options, world.size(),
                     std::accumulate(allocated.begin(), allocated.end(), std::uint64_t{0}),
                     trainer.steps());
    progress->header(trainer.parameters(), text, at_start);
  }

  History history;
  bool stopped = false;
  const ration::TrafficReport before = optimizer.traffic();
  const auto save = [&](bool beside) {
    const auto start = std::chrono::steady_clock::now();
    const ration::SaveReport saved = trainer.save(beside);
    if (progress && !saved.already_saved) progress->saved(saved, seconds_since(start));
  };
  while (trainer.steps() < options.steps && !stopped) {
    const int step = trainer.steps();
    const auto start = std::chrono::steady_clock::now();
    const double learning_rate = learning_rate_at(options, step);
    const ration::StepReport report = trainer.step(learning_rate);
    history.loss.push_back(report.metrics[0] / world.size());
    history.gradient_norm.push_back(report.gradient_norm);
    history.learning_rate.push_back(learning_rate);
    history.seconds.push_back(seconds_since(start));
    if (progress) {
      progress->step(step + 1, history.loss.back(), report.gradient_norm, learning_rate);
    }
    stopped = report.stop_requested;  // agreed: all ranks leave after the same step
    if (options.save_every > 0 && (step + 1) % options.save_every == 0)
      save(options.config.asynchronous_save);
  }
  if (!options.save.empty()) save(false);
  const ration::TrafficReport after = optimizer.traffic();
  if (progress) progress->end();

  const std::string digest = fmt::format("{:016x}", optimizer.digest());
  const auto ranks =
      collect(world, rank_report(optimizer.memory(), before, after, history.loss.size()));
  if (world.rank() != 0) return;
  if (!options.trace.empty()) ration::trace::write(options.trace);
  if (!options.report.empty()) {
    const double seconds = median(history.seconds);
    const double tokens = static_cast<double>(options.batch) * options.shape.sequence;
    write_report({.world = world.size(),
                  .stage = options.config.stage,
                  .parameters = trainer.parameters(),
                  .digest = digest,
                  .history = history,
                  .ranks = ranks,
                  .seconds_per_step = seconds,
                  .tokens_per_second = seconds > 0 ? tokens / seconds : 0.0},
                 options.report);
  }
  if (stopped && !options.quiet) fmt::print("stopped after step {}\n", trainer.steps());
  fmt::print("digest {}\n", digest);
}

}  // namespace

}  // namespace chargpt

int main(int argc, char** argv) {
  chargpt::Options options;
  chargpt::Text text;
  try {
    options = chargpt::parse_options(argc, argv);
    text = chargpt::read_text(options.text);
    const auto items = chargpt::items_in(text.tokens.size(), options.shape.sequence);
    if (items < options.batch) {
      throw std::runtime_error(
          fmt::format("--text: {} bytes are {} sequences of {} tokens, fewer than one batch of {}",
                      text.tokens.size(), items, options.shape.sequence, options.batch));
    }
  } catch (const chargpt::UsageError& error) {
    if (error.code == 0) {
      fmt::print("{}", error.what());
    } else {
      fmt::print(stderr, "chargpt: {}\n", error.what());
    }
    return error.code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "chargpt: {}\n", error.what());
    return 1;
  }
  if (!options.trace.empty()) ration::trace::start();
  return ration::launch(
      argc, argv, [&](ration::World& world) { chargpt::run(world, options, text); }, {.ranks = 4});
}
