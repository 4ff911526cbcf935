#pragma once
// A trainer whose gradients are a function of (step, micro-step, rank, parameter, element) and of
// the weights: what the library must do with them can be computed by an oracle, and every stage
// must do the same.

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ration/ration.hpp>

#include "comm/threads/threads.hpp"
#include "support/ranks.hpp"

namespace ration::test {

struct TinyUnit {
  std::string name;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> parameters;
  bool keep_whole = false;
};

/// Sizes around the alignment and the world, an empty one, a scalar, units smaller than the world.
inline std::vector<TinyUnit> tiny_model() {
  return {{"embedding", {{"wte", {37, 8}}, {"wpe", {16, 8}}}, true},
          {"h.0", {{"h.0.w", {24, 24}}, {"h.0.b", {24}}, {"h.0.none", {0, 5}}}},
          {"h.1", {{"h.1.w", {24, 25}}, {"h.1.b", {25}}, {"h.1.s", {}}}},
          {"h.2", {{"h.2.w", {64}}, {"h.2.b", {65}}, {"h.2.c", {63}}}},
          {"ln_f", {{"ln_f.w", {3}}, {"ln_f.b", {1}}}}};
}

/// A number in (-1, 1) from a hash of its arguments: gradients without a model.
inline float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t h = a * 0x9e3779b97f4a7c15ull ^ b * 0xbf58476d1ce4e5b9ull ^
                    c * 0x94d049bb133111ebull ^ d * 0xd6e8feb86659fd93ull;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  h ^= h >> 29;
  return static_cast<float>(static_cast<std::int64_t>(h >> 40) - (1 << 23)) /
         static_cast<float>(1 << 23);
}

/// Calls `function` with the C++ type of `type`.
template <class Function>
void with_type(DType type, const Function& function) {
  switch (type) {
    case DType::f32:
      function(float{});
      break;
    case DType::bf16:
      function(bf16{});
      break;
    case DType::f16:
      function(f16{});
      break;
    default:
      throw InvalidArgument("no parameter type");
  }
}

/// The gradient of one element, from its weight.
using GradientOf = std::function<float(int step, int micro, int rank, int parameter,
                                       std::int64_t element, float weight)>;

inline float default_gradient(int step, int micro, int rank, int parameter, std::int64_t element,
                              float weight) {
  return 0.5f * weight +
         noise(static_cast<std::uint64_t>(step * 64 + micro), static_cast<std::uint64_t>(rank),
               static_cast<std::uint64_t>(parameter), static_cast<std::uint64_t>(element));
}

/// One rank's model and optimizer.
class TinyTrainer {
 public:
  struct Options {
    Config config = {};
    Rule rule = AdamW{.learning_rate = 0.01};
    std::vector<TinyUnit> model = tiny_model();
    GradientOf gradient = default_gradient;
    std::optional<double> clip = std::nullopt;
    int micro_steps = 1;
    DType gradient_type = DType::f32;  // as config.precision resolves it
    bool initialize = true;            // otherwise the test loads
  };

  TinyTrainer(const ProcessGroup& group, const Options& options)
      : options_(options), optimizer_(group, options.config), group_(group) {
    options_.gradient_type =
        options.config.precision.gradient.value_or(options.config.precision.parameter);
    main_ = optimizer_.add_group(options.rule);
    for (const TinyUnit& unit : options_.model) {
      std::vector<ParameterSpec> specs;
      for (const auto& [name, shape] : unit.parameters)
        specs.push_back({.name = name, .shape = shape, .group = main_});
      units_.push_back(optimizer_.add_unit(unit.name, specs, {.keep_whole = unit.keep_whole}));
    }
    if (options.initialize) optimizer_.initialize(normal(0.5, 7));
  }

  /// One step of all micro-steps, units gathered forwards and backwards.
  StepReport step() {
    for (int i = 0; i < options_.micro_steps; ++i) {
      const MicroStep micro = optimizer_.micro_step(i, options_.micro_steps);
      for (const Unit& unit : units_) {
        const Gathered weights = unit.gather();
      }
      micro.begin_backward();
      for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) backward(*unit, i);
    }
    ++step_;
    return optimizer_.step({.clip_norm = options_.clip});
  }

  void backward(const Unit& unit, int micro) {
    const Gathered weights = unit.gather();
    for (const Parameter& parameter : parameters_of(unit))
      write_gradient(unit, weights, parameter, micro);
    unit.gradients_ready();
  }

  void write_gradient(const Unit& unit, const Gathered& weights, const Parameter& parameter,
                      int micro) {
    int index = 0;
    const auto all = optimizer_.parameters();
    while (all[static_cast<std::size_t>(index)].name() != parameter.name()) ++index;
    with_type(parameter.dtype(), [&](auto weight_type) {
      using W = decltype(weight_type);
      const W* w = weights.data<W>(parameter);
      with_type(options_.gradient_type, [&](auto gradient_type) {
        using G = decltype(gradient_type);
        G* g = unit.gradient<G>(parameter);
        for (std::int64_t i = 0; i < parameter.count(); ++i) {
          const float value =
              options_.gradient(step_, micro, group_.rank(), index, i, static_cast<float>(w[i]));
          g[i] = G(static_cast<float>(g[i]) + value);
        }
      });
    });
  }

  [[nodiscard]] std::vector<Parameter> parameters_of(const Unit& unit) const {
    std::vector<Parameter> result;
    for (const TinyUnit& u : options_.model) {
      if (u.name != unit.name()) continue;
      for (const auto& entry : u.parameters) result.push_back(unit[entry.first]);
    }
    return result;
  }

  ShardedOptimizer& optimizer() { return optimizer_; }
  std::vector<Unit>& units() { return units_; }
  Group& group() { return main_; }
  [[nodiscard]] const ProcessGroup& process_group() const { return group_; }
  [[nodiscard]] int steps() const { return step_; }
  /// Says that a step was taken without `step`: what gradients depend on.
  void count_step() { ++step_; }
  /// Goes on as after that many.
  void set_steps(int steps) { step_ = steps; }

 private:
  Options options_;
  ShardedOptimizer optimizer_;
  ProcessGroup group_;
  Group main_;
  std::vector<Unit> units_;
  int step_ = 0;
};

/// Runs `body` on `ranks` threads, each with its process group.
inline void with_ranks(int ranks, const std::function<void(ProcessGroup)>& body,
                       const ThreadsOptions& options = {}) {
  const auto communicators = make_threads(ranks, options);
  run_ranks(ranks, [&](int rank) {
    try {
      body(ProcessGroup(communicators[static_cast<std::size_t>(rank)]));
    } catch (const std::exception& error) {
      communicators[static_cast<std::size_t>(rank)]->abort(error.what());
      throw;
    }
  });
}

/// The digest after `steps` steps.
inline std::uint64_t train(int ranks, int steps, const TinyTrainer::Options& options,
                           const ThreadsOptions& threads = {}) {
  std::uint64_t digest = 0;
  with_ranks(
      ranks,
      [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options);
        for (int i = 0; i < steps; ++i) trainer.step();
        const std::uint64_t mine = trainer.optimizer().digest();
        if (group.rank() == 0) digest = mine;
      },
      threads);
  return digest;
}

}  // namespace ration::test
