#pragma once
// A unit of matrices and vectors whose groups the test chooses, trained on gradients that depend on
// (step, rank, parameter, element) alone.

#include "support/throws.hpp"

namespace ration::test {

struct Entry {
  std::string name;
  std::vector<std::int64_t> shape;
  int group = 0;
  bool trainable = true;
};

inline float gradient_at(int step, int rank, std::size_t parameter, std::size_t element) {
  return noise(static_cast<std::uint64_t>(step) + 1, static_cast<std::uint64_t>(rank), parameter,
               element);
}

class GroupedModel {
 public:
  GroupedModel(const ProcessGroup& group, const Config& config, const std::vector<Rule>& rules,
               const std::vector<Entry>& entries)
      : optimizer(group, config), rank_(group.rank()) {
    for (const Rule& rule : rules) groups.push_back(optimizer.add_group(rule));
    add_unit("unit", entries);
    optimizer.initialize(normal(0.5, 7));
  }

  void add_unit(const std::string& name, const std::vector<Entry>& entries) {
    std::vector<ParameterSpec> specs;
    for (const Entry& e : entries) {
      specs.push_back({.name = e.name,
                       .shape = e.shape,
                       .group = groups.at(static_cast<std::size_t>(e.group)),
                       .trainable = e.trainable});
    }
    units.push_back(optimizer.add_unit(name, specs));
  }

  /// `skips`: parameters that get no gradient.
  StepReport step(const std::vector<std::string>& skips = {}) {
    const MicroStep micro = optimizer.micro_step();
    micro.begin_backward();
    const auto all = optimizer.parameters();
    for (std::size_t u = units.size(); u-- > 0;) {
      const Gathered weights = units[u].gather();
      for (std::size_t p = 0; p < all.size(); ++p) {
        const auto& name = all[p].name();
        if (std::find(skips.begin(), skips.end(), name) != skips.end()) continue;
        if (!in_unit(units[u], name)) continue;
        float* gradient = units[u].gradient<float>(all[p]);
        for (std::size_t i = 0; i < static_cast<std::size_t>(all[p].count()); ++i)
          gradient[i] = gradient_at(steps, rank_, p, i);
      }
      units[u].gradients_ready();
    }
    ++steps;
    return optimizer.step();
  }

  std::vector<float> read(std::string_view name, std::string_view kind = "parameter") {
    return optimizer.read(optimizer.parameter(name), kind);
  }

  ShardedOptimizer optimizer;
  std::vector<Group> groups;
  std::vector<Unit> units;
  int steps = 0;

 private:
  static bool in_unit(const Unit& unit, const std::string& name) {
    try {
      (void)unit[name];
      return true;
    } catch (const InvalidArgument&) {
      return false;
    }
  }
  int rank_;
};

/// "exp_avg" and so on of every parameter: all that must not change.
inline std::vector<std::vector<float>> everything(GroupedModel& model) {
  std::vector<std::vector<float>> all;
  for (const Parameter& p : model.optimizer.parameters()) {
    for (const char* kind : {"parameter", "master", "exp_avg", "exp_avg_sq"})
      all.push_back(model.optimizer.read(p, kind));
    all.push_back({static_cast<float>(model.optimizer.step_count(p))});
  }
  return all;
}

}  // namespace ration::test
