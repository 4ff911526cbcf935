// How a trainer says what it has written: asked for, ready, overwritten, frozen; and what is
// refused.

#include <random>

#include "engine/engine_test.hpp"

namespace ration::test {
namespace {

// Writes every gradient of a micro-step, then says ready parameter by parameter, shuffled over the
// whole model by `seed`.
void backward_shuffled(TinyTrainer& trainer, int micro, std::uint32_t seed) {
  std::vector<std::pair<Unit, Parameter>> all;
  for (const Unit& unit : trainer.units()) {
    for (const Parameter& parameter : trainer.parameters_of(unit))
      all.emplace_back(unit, parameter);
  }
  std::shuffle(all.begin(), all.end(), std::minstd_rand(seed));
  for (const auto& [unit, parameter] : all) {
    {
      const Gathered weights = unit.gather();
      trainer.write_gradient(unit, weights, parameter, micro);
    }
    unit.gradient_ready(parameter);
  }
}

TEST(ParameterReady, InAnyOrderGivesTheSameBits) {
  at_every_stage(
      [](const Setting& setting) {
        TinyTrainer::Options options = options_of(setting, 2);
        for (TinyUnit& unit : options.model) unit.keep_whole = true;
        options.config.buckets = 5;
        const std::uint64_t expected = train(3, 2, options, setting.threads);
        PerRank<std::uint64_t> digests(3);
        with_ranks(
            3,
            [&](const ProcessGroup& group) {
              TinyTrainer trainer(group, options);
              // The first step's order on each rank is its own; TinyTrainer counts its steps, so
              // what is not in the first is taken by `step`.
              for (int i = 0; i < 2; ++i) {
                trainer.optimizer().micro_step(i, 2).begin_backward();
                backward_shuffled(trainer, i, static_cast<std::uint32_t>(7 * group.rank() + i + 1));
              }
              trainer.optimizer().step();
              trainer.count_step();
              trainer.step();
              digests[group] = trainer.optimizer().digest();
            },
            setting.threads);
        EXPECT_TRUE(digests.alike());
        EXPECT_EQ(digests.first(), expected);
      },
      2);
}

// A small optimizer in a backward: unit "u" of "a", "b" and a frozen "f".
struct Small {
  Small(const ProcessGroup& group, const Setting& setting, int micro_steps = 1)
      : optimizer(group, options_of(setting, micro_steps).config) {
    optimizer.add_group(SGD{.learning_rate = 0.1});
    unit = optimizer.add_unit("u", {{.name = "a", .shape = {10}},
                                    {.name = "b", .shape = {7}},
                                    {.name = "f", .shape = {9}, .trainable = false}});
    other = optimizer.add_unit("v", {{.name = "c", .shape = {3}}});
    optimizer.initialize(constant(0.5f));
  }
  void fill(const Parameter& parameter) const {
    std::fill_n(unit.gradient<float>(parameter), parameter.count(), 1.0f);
  }
  ShardedOptimizer optimizer;
  Unit unit;
  Unit other;
};

void on_two_ranks(const std::function<void(const ProcessGroup&, const Setting&)>& body,
                  int micro_steps = 1) {
  at_every_stage(
      [&](const Setting& setting) {
        with_ranks(
            2, [&](const ProcessGroup& group) { body(group, setting); }, setting.threads);
      },
      micro_steps);
}

bool says(const std::string& text, const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return text.find(part) != text.npos; });
}

TEST(Ready, SaidTwiceIsRefusedByNameAndTheStepGoesOn) {
  on_two_ranks([](const ProcessGroup& group, const Setting& setting) {
    Small small(group, setting);
    small.optimizer.micro_step().begin_backward();
    small.fill(small.unit["a"]);
    small.unit.gradient_ready(small.unit["a"]);
    const std::string rank = fmt::format("rank {}", group.rank());
    EXPECT_PRED2(says, error_of([&] { small.unit.gradient_ready(small.unit["a"]); }),
                 (std::vector<std::string>{rank, "\"a\"", "twice"}));
    EXPECT_PRED2(says, error_of([&] { small.fill(small.unit["a"]); }),
                 (std::vector<std::string>{rank, "\"a\"", "ready"}));
    small.unit.gradients_ready();
    EXPECT_PRED2(says, error_of([&] { small.unit.gradients_ready(); }),
                 (std::vector<std::string>{rank, "\"u\"", "twice"}));
    EXPECT_PRED2(says, error_of([&] { small.unit.gradient_ready(small.unit["b"]); }),
                 (std::vector<std::string>{rank, "\"b\"", "twice"}));
    EXPECT_PRED2(says, error_of([&] { small.fill(small.unit["b"]); }),
                 (std::vector<std::string>{rank, "\"b\"", "ready"}));
    EXPECT_FALSE(small.optimizer.step().skipped);
    EXPECT_FLOAT_EQ(small.optimizer.read(small.unit["a"], "parameter")[9], 0.4f);
    EXPECT_EQ(small.optimizer.read(small.unit["b"], "parameter")[6], 0.5f);
  });
}

TEST(Ready, NeverSaidIsRefusedByNameAndCanBeMadeGood) {
  on_two_ranks([](const ProcessGroup& group, const Setting& setting) {
    Small small(group, setting);
    small.optimizer.micro_step().begin_backward();
    small.fill(small.unit["a"]);
    small.fill(small.unit["b"]);
    small.unit.gradient_ready(small.unit["b"]);
    EXPECT_PRED2(says, error_of([&] { small.optimizer.step(); }),
                 (std::vector<std::string>{"\"a\"", "never said to be ready", "gradients_ready"}));
    small.unit.gradients_ready();
    small.optimizer.step();
    EXPECT_FLOAT_EQ(small.optimizer.read(small.unit["a"], "parameter")[0], 0.4f);
  });
}

TEST(Ready, OfSomeParametersOnlyIsAUnitWhoseOthersAreZero) {
  on_two_ranks(
      [](const ProcessGroup& group, const Setting& setting) {
        Small small(group, setting, 2);
        for (int i = 0; i < 2; ++i) {
          small.optimizer.micro_step(i, 2).begin_backward();
          const Parameter only = small.unit[i == 0 ? "a" : "b"];
          small.fill(only);
          small.unit.gradient_ready(only);
        }
        small.optimizer.step();
        // Each in one of two micro-steps: half the mean.
        EXPECT_FLOAT_EQ(small.optimizer.read(small.unit["a"], "parameter")[0], 0.45f);
        EXPECT_FLOAT_EQ(small.optimizer.read(small.unit["b"], "parameter")[6], 0.45f);
        EXPECT_EQ(small.optimizer.read(small.optimizer.parameter("c"), "parameter")[0], 0.5f);
      },
      2);
}

TEST(Overwrite, IsFineInTheFirstMicroStepAndRefusedOverASum) {
  on_two_ranks(
      [](const ProcessGroup& group, const Setting& setting) {
        Small small(group, setting, 2);
        for (int step = 0; step < 2; ++step) {
          for (int i = 0; i < 2; ++i) {
            small.optimizer.micro_step(i, 2).begin_backward();
            for (const char* name : {"a", "b"}) {
              const Parameter parameter = small.unit[name];
              const auto ask = [&] {
                std::fill_n(small.unit.gradient<float>(parameter, overwrite), parameter.count(),
                            1.0f);
              };
              const std::string error = error_of(ask);
              const bool holds_sum = i == 1 && setting.accumulation == Accumulation::local;
              EXPECT_EQ(error.empty(), !holds_sum) << error;
              if (!holds_sum) continue;
              EXPECT_PRED2(says, error,
                           (std::vector<std::string>{fmt::format("\"{}\"", name), "micro-step 1"}));
              float* gradient = small.unit.gradient<float>(parameter);
              for (std::int64_t e = 0; e < parameter.count(); ++e) gradient[e] += 1.0f;
            }
            small.unit.gradients_ready();
          }
          small.optimizer.step();
          EXPECT_FLOAT_EQ(small.optimizer.read(small.unit["b"], "parameter")[6],
                          step == 0 ? 0.4f : 0.3f);
        }
      },
      2);
}

TEST(Gradient, IsRefusedWhereItCannotBe) {
  on_two_ranks([](const ProcessGroup& group, const Setting& setting) {
    Small small(group, setting);
    const Parameter a = small.unit["a"];
    EXPECT_PRED2(says, error_of([&] { small.fill(a); }),
                 (std::vector<std::string>{"\"a\"", "outside a backward"}));
    const MicroStep micro = small.optimizer.micro_step();
    EXPECT_PRED2(says, error_of([&] { small.fill(a); }),
                 (std::vector<std::string>{"\"a\"", "begin_backward"}));
    EXPECT_PRED2(says, error_of([&] { small.unit.gradients_ready(); }),
                 (std::vector<std::string>{"\"u\"", "outside a backward"}));
    micro.begin_backward();
    EXPECT_PRED2(says, error_of([&] { small.fill(small.unit["f"]); }),
                 (std::vector<std::string>{"\"f\"", "frozen"}));
    EXPECT_PRED2(says, error_of([&] { small.unit.gradient_ready(small.unit["f"]); }),
                 (std::vector<std::string>{"\"f\"", "frozen"}));
    EXPECT_PRED2(says, error_of([&] { (void)small.unit.gradient<bf16>(a); }),
                 (std::vector<std::string>{"\"a\"", "bf16", "f32"}));
    EXPECT_PRED2(says, error_of([&] { (void)small.other.gradient<float>(a); }),
                 (std::vector<std::string>{"\"a\"", "\"u\"", "\"v\""}));
    EXPECT_PRED2(says, error_of([&] { small.other.gradient_ready(a); }),
                 (std::vector<std::string>{"\"a\"", "\"u\"", "\"v\""}));
    EXPECT_FALSE(small.optimizer.step().skipped);
  });
}

TEST(Frozen, ParametersHaveNoGradientAndNoStateUntilTheyAreThawed) {
  on_two_ranks([](const ProcessGroup& group, const Setting& setting) {
    Small small(group, setting);
    for (const InventoryEntry& entry : small.optimizer.inventory()) {
      if (entry.name.find("frozen") == std::string::npos) continue;
      EXPECT_EQ(entry.kind, MemoryKind::parameters) << entry.name;
    }
    const Parameter f = small.unit["f"];
    const auto train_all = [&](bool frozen) {
      small.optimizer.micro_step().begin_backward();
      for (const char* name : {"a", "b", "f"}) {
        if (!frozen || std::string_view(name) != "f") small.fill(small.unit[name]);
      }
      small.unit.gradients_ready();
      small.optimizer.step();
    };
    const Snapshot before = snapshot_of(small.optimizer, "f");
    train_all(true);
    EXPECT_EQ(snapshot_of(small.optimizer, "f"), before);
    small.optimizer.set_trainable(f, true);
    small.optimizer.relayout();
    EXPECT_EQ(small.optimizer.read(f, "parameter")[8], 0.5f);
    train_all(false);
    EXPECT_FLOAT_EQ(small.optimizer.read(f, "parameter")[8], 0.4f);
    EXPECT_FLOAT_EQ(small.optimizer.read(small.unit["a"], "parameter")[0], 0.3f);
    // Masked: its memory stays, its values too.
    small.optimizer.set_trainable(f, false);
    const Snapshot masked = snapshot_of(small.optimizer, "f");
    train_all(true);
    EXPECT_EQ(snapshot_of(small.optimizer, "f"), masked);
  });
}

}  // namespace
}  // namespace ration::test
