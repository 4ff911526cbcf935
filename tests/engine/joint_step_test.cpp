// Several optimizers under one norm, one skip and one clip.

#include <limits>

#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

constexpr int kJointRanks = 4;
constexpr double kRate = 0.5;

// A parameter of the joint model: name, and which ranks hold and feed it.
float gradient_of(int step, int tensor, int rank, std::int64_t element) {
  return noise(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(tensor),
               static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(element));
}

/// One tensor in one unit in one optimizer.
struct Single {
  Single(const ProcessGroup& group, Config config, int which, std::int64_t elements)
      : tensor(which), count(elements), optimizer(group, config) {
    optimizer.add_group(SGD{.learning_rate = kRate, .momentum = 0.5});
    unit = optimizer.add_unit("unit", {{.name = "w", .shape = {elements}}});
    optimizer.initialize(constant(static_cast<float>(which)));
  }
  void backward(int step, int rank, const MicroStepOptions& options = {}) const {
    optimizer_().micro_step(0, 1, options).begin_backward();
    float* gradient = unit.gradient<float>(unit["w"]);
    for (std::int64_t i = 0; i < count; ++i) gradient[i] = gradient_of(step, tensor, rank, i);
    unit.gradients_ready();
  }
  std::vector<float> values() { return optimizer.read(unit["w"], "parameter"); }
  [[nodiscard]] ShardedOptimizer& optimizer_() const {
    return const_cast<ShardedOptimizer&>(optimizer);
  }

  int tensor;
  std::int64_t count;
  ShardedOptimizer optimizer;
  Unit unit;
};

// The reference: tensors whose gradient is a sum over `ranks`, all divided by one weight.
struct Tensor {
  int tensor;
  std::int64_t count;
  std::vector<int> ranks;
  std::vector<double> weights = {};
  std::vector<double> momentum = {};
};

double oracle_step(std::vector<Tensor>& tensors, int step, double total_weight, double clip,
                   const std::function<int(int tensor, int rank)>& feed) {
  std::vector<std::vector<double>> means;
  double squares = 0;
  for (Tensor& t : tensors) {
    auto& mean = means.emplace_back(static_cast<std::size_t>(t.count));
    for (std::int64_t i = 0; i < t.count; ++i) {
      double& m = mean[static_cast<std::size_t>(i)];
      for (const int rank : t.ranks)
        m += gradient_of(step, t.tensor, feed(t.tensor, rank), i) / total_weight;
      squares += m * m;
    }
  }
  const double norm = std::sqrt(squares);
  const double factor = norm > clip ? clip / norm : 1.0;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    Tensor& t = tensors[k];
    if (t.weights.empty()) t.weights.assign(static_cast<std::size_t>(t.count), t.tensor);
    const bool first = t.momentum.empty();
    if (first) t.momentum.assign(static_cast<std::size_t>(t.count), 0.0);
    for (std::size_t i = 0; i < t.weights.size(); ++i) {
      const double g = factor * means[k][i];
      t.momentum[i] = first ? g : 0.5 * t.momentum[i] + g;
      t.weights[i] -= kRate * t.momentum[i];
    }
  }
  return norm;
}

std::string difference(Single& single, const Tensor& expected) {
  return first_difference({{"w", single.values()}}, {{"w", expected.weights}});
}

TEST(JointStep, OfTwoOptimizersOverTheSameGroupIsOneStep) {
  at_every_stage([](const Setting& setting) {
    PerRank<double> norms(kJointRanks);
    with_ranks(
        kJointRanks,
        [&](const ProcessGroup& group) {
          const Config config = options_of(setting).config;
          Single a(group, config, 1, 70);
          Single b(group, config, 2, 301);
          std::vector<Tensor> oracle = {{1, 70, {0, 1, 2, 3}}, {2, 301, {0, 1, 2, 3}}};
          for (int step = 0; step < 3; ++step) {
            a.backward(step, group.rank());
            b.backward(step, group.rank());
            const StepReport report = ration::step(group, {&a.optimizer, &b.optimizer},
                                                   {.clip_norm = 2.0, .metrics = {0.5}});
            const double norm =
                oracle_step(oracle, step, kJointRanks, 2.0, [](int, int rank) { return rank; });
            EXPECT_GT(norm, 2.0);
            EXPECT_NEAR(report.gradient_norm, norm, 1e-6 * norm);
            EXPECT_EQ(report.step, step + 1);
            EXPECT_EQ(report.batches, kJointRanks);
            EXPECT_EQ(report.metrics, std::vector<double>{2.0});
            norms[group] = report.gradient_norm;
          }
          EXPECT_EQ(difference(a, oracle[0]), "");
          EXPECT_EQ(difference(b, oracle[1]), "");
        },
        setting.threads);
    EXPECT_TRUE(norms.alike());
  });
}

// Tensor 1 on all ranks; experts 2 on ranks 0, 1 and 3 on ranks 2, 3; and tensor 4, which ranks
// {0, 2} and {1, 3} hold each for themselves, fed alike.
TEST(JointStep, OfExpertsCountsEachDistinctParameterOnce) {
  at_every_stage([](const Setting& setting) {
    with_ranks(
        kJointRanks,
        [&](const ProcessGroup& group) {
          const int rank = group.rank();
          const ProcessGroup experts = group.split(rank / 2);
          const ProcessGroup copies = group.split(rank % 2);
          Config config = options_of(setting).config;
          Single dense(group, config, 1, 130);
          const int mine = 2 + rank / 2;
          Single expert(experts, config, mine, 77);
          config.replicas = 2;
          Single copied(copies, config, 4, 200);
          std::vector<Tensor> oracle = {
              {1, 130, {0, 1, 2, 3}}, {2, 77, {0, 1}}, {3, 77, {2, 3}}, {4, 200, {0, 2}}};
          const auto feed = [](int tensor, int r) { return tensor == 4 ? r / 2 : r; };
          for (int step = 0; step < 2; ++step) {
            dense.backward(step, feed(1, rank));
            expert.backward(step, feed(mine, rank));
            copied.backward(step, feed(4, rank));
            const StepReport report = ration::step(
                group, {&dense.optimizer, &expert.optimizer, &copied.optimizer}, {.clip_norm = 1});
            const double norm = oracle_step(oracle, step, kJointRanks, 1.0, feed);
            EXPECT_NEAR(report.gradient_norm, norm, 1e-6 * norm);
          }
          EXPECT_EQ(difference(dense, oracle[0]), "");
          EXPECT_EQ(difference(expert, oracle[static_cast<std::size_t>(mine - 1)]), "");
          EXPECT_EQ(difference(copied, oracle[3]), "");
        },
        setting.threads);
  });
}

TEST(JointStep, IsSkippedByAnOverflowInOneOptimizerOfOneGroup) {
  at_every_stage([](const Setting& setting) {
    with_ranks(
        kJointRanks,
        [&](const ProcessGroup& group) {
          const int rank = group.rank();
          Config config = options_of(setting).config;
          config.loss_scale = {.initial = 8, .dynamic = true};
          Single dense(group, config, 1, 130);
          Single expert(group.split(rank / 2), config, 2 + rank / 2, 77);
          const auto step = [&](int number, bool overflow) {
            dense.backward(number, rank);
            expert.optimizer.micro_step().begin_backward();
            float* gradient = expert.unit.gradient<float>(expert.unit["w"]);
            if (overflow && rank == 3) gradient[76] = -std::numeric_limits<float>::infinity();
            expert.unit.gradients_ready();
            return ration::step(group, {&dense.optimizer, &expert.optimizer});
          };
          EXPECT_FALSE(step(0, false).skipped);
          const Snapshot before = snapshot_of(dense.optimizer);
          const Snapshot expert_before = snapshot_of(expert.optimizer);
          EXPECT_TRUE(step(1, true).skipped);
          EXPECT_EQ(snapshot_of(dense.optimizer), before);
          EXPECT_EQ(snapshot_of(expert.optimizer), expert_before);
          EXPECT_EQ(dense.optimizer.loss_scale(), 4);
          EXPECT_EQ(expert.optimizer.loss_scale(), 4);
          EXPECT_FALSE(step(2, false).skipped);
          EXPECT_NE(snapshot_of(dense.optimizer), before);
        },
        setting.threads);
  });
}

TEST(JointStep, WeighsByTheWholeParentAndLetsRanksHaveNoBatch) {
  at_every_stage([](const Setting& setting) {
    with_ranks(
        kJointRanks,
        [&](const ProcessGroup& group) {
          const int rank = group.rank();
          const Config config = options_of(setting).config;
          Single dense(group, config, 1, 130);
          Single expert(group.split(rank / 2), config, 2 + rank / 2, 77);
          std::vector<Tensor> oracle = {{1, 130, {0, 1, 3}}, {2, 77, {0, 1}}, {3, 77, {3}}};
          // Ranks 0, 1 and 3 have 1, 2 and 4 items, rank 2 has no batch.
          const MicroStepOptions options{.weight = rank == 3 ? 4.0 : 1.0 + rank,
                                         .has_batch = rank != 2};
          if (options.has_batch) {
            dense.backward(0, rank, options);
            expert.backward(0, rank, options);
          } else {
            dense.optimizer.micro_step(0, 1, options);
            expert.optimizer.micro_step(0, 1, options);
          }
          const StepReport report = ration::step(group, {&expert.optimizer, &dense.optimizer});
          EXPECT_EQ(report.batches, 3);
          EXPECT_EQ(report.total_weight, 7);
          const double norm = oracle_step(oracle, 0, 7, 1e9, [](int, int r) { return r; });
          EXPECT_NEAR(report.gradient_norm, norm, 1e-6 * norm);
          EXPECT_EQ(difference(dense, oracle[0]), "");
          EXPECT_EQ(difference(expert, oracle[static_cast<std::size_t>(1 + rank / 2)]), "");
        },
        setting.threads);
  });
}

TEST(JointStep, RefusesWhatDoesNotGoTogetherAndLeavesItAsItWas) {
  with_ranks(2, [&](const ProcessGroup& group) {
    Config config;
    Single a(group, config, 1, 70);
    Single b(group, config, 2, 30);
    const auto refused = [&](const std::string& what) {
      const std::string error = error_of([&] {
        ration::step(group, {&a.optimizer, &b.optimizer});
      });
      EXPECT_NE(error.find(what), std::string::npos) << error;
    };
    refused("last micro-step");
    a.backward(0, group.rank());
    refused("last micro-step");
    b.backward(0, group.rank(), {.weight = 3});
    refused("weight");
    // Nothing was exchanged, so each can still go on by itself.
    EXPECT_FALSE(a.optimizer.step().skipped);
    EXPECT_FALSE(b.optimizer.step().skipped);
    config.loss_scale.initial = 2;
    Single c(group, config, 3, 30);
    a.backward(1, group.rank());
    c.backward(1, group.rank());
    EXPECT_NE(error_of([&] {
                ration::step(group, {&a.optimizer, &c.optimizer});
              }).find("loss scales"),
              std::string::npos);
    EXPECT_NE(error_of([&] { ration::step(group, {}); }).find("no optimizers"), std::string::npos);
    EXPECT_NE(error_of([&] { ration::step(group, {&a.optimizer, &a.optimizer}); }), "");
  });
}

TEST(JointStep, OptionsThatDifferAreRefusedOnAllRanksAndTheNextStepTrains) {
  with_ranks(kJointRanks, [](const ProcessGroup& group) {
    const int rank = group.rank();
    Single expert(group.split(rank / 2), {}, 2 + rank / 2, 77);
    Single dense(group, {}, 1, 130);
    const auto step = [&](double clip) {
      dense.backward(0, rank);
      expert.backward(0, rank);
      return ration::step(group, {&expert.optimizer, &dense.optimizer}, {.clip_norm = clip});
    };
    const Snapshot before = snapshot_of(dense.optimizer);
    // Of rank 3's two groups one holds ranks 2 and 3 only; the others must not wait for them.
    const std::string error = error_of([&] { step(rank == 3 ? 2.0 : 1.0); });
    EXPECT_NE(error.find("clip_norm is 2, rank 0 has 1"), std::string::npos) << error;
    EXPECT_EQ(snapshot_of(dense.optimizer), before);
    EXPECT_FALSE(step(1.0).skipped);
    EXPECT_NE(snapshot_of(dense.optimizer), before);
  });
}

}  // namespace
}  // namespace ration::test
