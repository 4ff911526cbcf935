// reduce_gradients and apply: the two halves of a step, with a look between them.

#include <set>

#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

constexpr int kRanks = 3;

// A step of the trainer's up to where its optimizer's step would be called.
void backward_all(TinyTrainer& trainer, int micro_steps) {
  for (int i = 0; i < micro_steps; ++i) {
    trainer.optimizer().micro_step(i, micro_steps).begin_backward();
    for (auto unit = trainer.units().rbegin(); unit != trainer.units().rend(); ++unit)
      trainer.backward(*unit, i);
  }
  trainer.count_step();
}

std::vector<TinyTrainer::Options> all_options(const Setting& setting) {
  std::vector<TinyTrainer::Options> result;
  for (const DType type : {DType::f32, DType::bf16}) {
    result.push_back(options_of(setting, 2));
    result.back().config.precision.parameter = type;
    result.push_back(options_of(setting, 1));
    result.back().config.precision.parameter = type;
    result.back().clip = 0.5;
  }
  return result;
}

void at_every_stage_and_type(
    const std::function<void(const Setting&, const TinyTrainer::Options&)>& body) {
  at_every_stage(
      [&](const Setting& setting) {
        for (const TinyTrainer::Options& options : all_options(setting)) body(setting, options);
      },
      2);
}

TEST(Halves, AreAStep) {
  at_every_stage_and_type([](const Setting& setting, const TinyTrainer::Options& options) {
    const std::uint64_t expected = train(kRanks, 2, options, setting.threads);
    PerRank<std::uint64_t> digests(kRanks);
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          for (int step = 0; step < 2; ++step) {
            backward_all(trainer, options.micro_steps);
            Gradients gradients = trainer.optimizer().reduce_gradients();
            EXPECT_TRUE(gradients.finite());
            EXPECT_EQ(gradients.batches(), kRanks * options.micro_steps);
            EXPECT_EQ(gradients.factor(), 1.0 / (kRanks * options.micro_steps));
            const StepReport report =
                trainer.optimizer().apply(gradients, {.clip_norm = options.clip, .metrics = {1.0}});
            EXPECT_EQ(report.gradient_norm, gradients.norm());
            EXPECT_EQ(report.step, step + 1);
            EXPECT_EQ(report.metrics, std::vector<double>{kRanks});
          }
          digests[group] = trainer.optimizer().digest();
        },
        setting.threads);
    EXPECT_TRUE(digests.alike());
    EXPECT_EQ(digests.first(), expected);
  });
}

TEST(Halves, SpansCoverEachElementOnceWithItsSum) {
  at_every_stage([](const Setting& setting) {
    TinyTrainer::Options options = options_of(setting);
    options.gradient = [](int, int, int rank, int p, std::int64_t i, float) {
      return static_cast<float>(i * 100 + p * 10 + rank);
    };
    std::mutex mutex;
    std::map<std::string, std::multiset<std::int64_t>> covered;
    std::map<std::string, std::int64_t> counts;
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options);
          backward_all(trainer, 1);
          Gradients gradients = trainer.optimizer().reduce_gradients();
          const auto all = trainer.optimizer().parameters();
          for (const GradientSpan& span : gradients.spans()) {
            int p = 0;
            while (all[static_cast<std::size_t>(p)].name() != span.parameter.name()) ++p;
            const std::lock_guard lock(mutex);
            for (std::int64_t i = 0; i < span.count; ++i) {
              const std::int64_t element = span.first_element + i;
              covered[span.parameter.name()].insert(element);
              EXPECT_EQ(static_cast<const float*>(span.data)[i],
                        static_cast<float>(kRanks * (element * 100 + p * 10) + 3));
            }
          }
          for (const Parameter& parameter : all) {
            const std::lock_guard lock(mutex);
            counts[parameter.name()] = parameter.count();
          }
          trainer.optimizer().apply(gradients);
        },
        setting.threads);
    for (const auto& [name, count] : counts) {
      std::multiset<std::int64_t> each;
      for (std::int64_t i = 0; i < count; ++i) each.insert(i);
      EXPECT_EQ(covered[name], each) << name;
    }
  });
}

TEST(Halves, ChangedGradientsAreAppliedWithTheirNewNorm) {
  at_every_stage_and_type([&](const Setting& setting, const TinyTrainer::Options& options) {
    // The trainer doubles its own gradients against a run whose reduced ones are doubled; powers of
    // two, so the bits are the same.
    TinyTrainer::Options doubled = options;
    doubled.gradient = [](int step, int micro, int rank, int p, std::int64_t i, float) {
      return 2 * noise(static_cast<std::uint64_t>(step * 8 + micro),
                       static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(p),
                       static_cast<std::uint64_t>(i));
    };
    TinyTrainer::Options single = options;
    single.gradient = [f = doubled.gradient](int step, int micro, int rank, int p, std::int64_t i,
                                             float w) { return f(step, micro, rank, p, i, w) / 2; };
    std::uint64_t expected = 0;
    double expected_norm = 0;
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, doubled);
          const double norm = trainer.step().gradient_norm;
          const std::uint64_t digest = trainer.optimizer().digest();
          if (group.rank() == 0) expected = digest, expected_norm = norm;
        },
        setting.threads);
    PerRank<std::uint64_t> changed(kRanks);
    PerRank<Snapshot> snapshots(kRanks);
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, single);
          backward_all(trainer, single.micro_steps);
          Gradients gradients = trainer.optimizer().reduce_gradients();
          for (const GradientSpan& span : gradients.change()) {
            with_type(span.type, [&](auto t) {
              auto* data = static_cast<decltype(t)*>(span.data);
              for (std::int64_t i = 0; i < span.count; ++i)
                data[i] = decltype(t)(2 * static_cast<float>(data[i]));
            });
          }
          const StepReport report =
              trainer.optimizer().apply(gradients, {.clip_norm = single.clip});
          EXPECT_EQ(report.gradient_norm, expected_norm);
          snapshots[group] = snapshot_of(trainer.optimizer());
          changed[group] = trainer.optimizer().digest();
        },
        setting.threads);
    EXPECT_TRUE(changed.alike());
    EXPECT_TRUE(snapshots.alike());
    EXPECT_EQ(changed.first(), expected);
  });
}

TEST(Halves, ChangedOnOneRankOnlyReachesAll) {
  at_every_stage([](const Setting& setting) {
    PerRank<Values> values(kRanks);
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer::Options options = options_of(setting);
          options.rule = SGD{.learning_rate = 1.0};
          options.model = {{"only", {{"w", {kRanks * 64}}}}};
          options.gradient = [](auto...) { return 1.0f; };
          TinyTrainer trainer(group, options);
          Oracle oracle = Oracle::of(trainer.optimizer());
          backward_all(trainer, 1);
          Gradients gradients = trainer.optimizer().reduce_gradients();
          if (group.rank() == 1) {
            for (const GradientSpan& span : gradients.change())
              std::fill_n(static_cast<float*>(span.data), span.count, 0.0f);
          }
          const StepReport report = trainer.optimizer().apply(gradients);
          const double norm =
              oracle.step(1.0, [](int, std::int64_t i) { return i / 64 == 1 ? 0.0 : 1.0; });
          EXPECT_NEAR(report.gradient_norm, norm, 1e-6 * norm);
          values[group] = values_of(trainer.optimizer());
          EXPECT_EQ(first_difference(values[group], oracle.weights()), "");
        },
        setting.threads);
    EXPECT_TRUE(values.alike());
  });
}

TEST(Halves, SkippedByAnyRankIsSkippedByAll) {
  at_every_stage([](const Setting& setting) {
    with_ranks(
        kRanks,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options_of(setting));
          const Snapshot before = snapshot_of(trainer.optimizer());
          backward_all(trainer, 1);
          Gradients gradients = trainer.optimizer().reduce_gradients();
          const StepReport report =
              trainer.optimizer().apply(gradients, {.skip = group.rank() == 2});
          EXPECT_TRUE(report.skipped);
          EXPECT_TRUE(std::isfinite(report.gradient_norm));
          EXPECT_EQ(snapshot_of(trainer.optimizer()), before);
          EXPECT_FALSE(trainer.step().skipped);
        },
        setting.threads);
  });
}

TEST(Halves, AreRefusedInAnyOtherOrder) {
  at_every_stage([](const Setting& setting) {
    with_ranks(
        2,
        [&](const ProcessGroup& group) {
          TinyTrainer trainer(group, options_of(setting));
          ShardedOptimizer& optimizer = trainer.optimizer();
          Gradients none;
          EXPECT_NE(error_of([&] { optimizer.apply(none); }).find("reduce_gradients"),
                    std::string::npos);
          EXPECT_NE(error_of([&] { (void)optimizer.reduce_gradients(); }), "");
          backward_all(trainer, 1);
          Gradients gradients = optimizer.reduce_gradients();
          EXPECT_NE(error_of([&] { optimizer.apply(none); }), "");
          EXPECT_NE(error_of([&] { optimizer.step(); }).find("apply"), std::string::npos);
          EXPECT_NE(error_of([&] { optimizer.micro_step(); }).find("apply"), std::string::npos);
          EXPECT_NE(error_of([&] { (void)optimizer.reduce_gradients(); }).find("apply"),
                    std::string::npos);
          optimizer.apply(gradients);
          EXPECT_NE(error_of([&] { optimizer.apply(gradients); }), "");
          EXPECT_NE(error_of([&] { (void)gradients.spans(); }), "");
          EXPECT_FALSE(trainer.step().skipped);
        },
        setting.threads);
  });
}

}  // namespace
}  // namespace ration::test
