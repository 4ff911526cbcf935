#pragma once
// What the engine's tests share: every stage in both modes of threads, a model's values and state
// as they are, a float64 trainer to compare with, and ranks of which some fail.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/training.hpp"

namespace ration::test {

inline constexpr ThreadsOptions kDirect{.mode = ThreadsOptions::Mode::direct};
inline constexpr ThreadsOptions kStreams{.mode = ThreadsOptions::Mode::streams};

/// How a test is repeated.
struct Setting {
  int stage = 0;
  ThreadsOptions threads;
  Accumulation accumulation = Accumulation::local;
  [[nodiscard]] std::string name() const {
    return fmt::format("stage {}, {}, {}", stage,
                       threads.mode == ThreadsOptions::Mode::direct ? "direct" : "streams",
                       accumulation == Accumulation::local ? "local" : "sharded");
  }
};

/// Each stage in each mode; with each accumulation where `micro_steps` is above 1.
template <class Function>
void at_every_stage(const Function& function, int micro_steps = 1) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const ThreadsOptions& threads : {kDirect, kStreams}) {
      for (const auto accumulation : {Accumulation::local, Accumulation::sharded}) {
        if (micro_steps == 1 && accumulation == Accumulation::sharded) continue;
        const Setting setting{stage, threads, accumulation};
        SCOPED_TRACE(setting.name());
        function(setting);
      }
    }
  }
}

inline TinyTrainer::Options options_of(const Setting& setting, int micro_steps = 1) {
  TinyTrainer::Options options;
  options.config.stage = setting.stage;
  options.config.micro_steps = micro_steps;
  options.config.accumulation = setting.accumulation;
  options.micro_steps = micro_steps;
  return options;
}

/// Of each parameter, by name.
using Values = std::map<std::string, std::vector<float>>;
using Numbers = std::map<std::string, std::vector<double>>;

/// Collective. A kind of value of every parameter: "parameter", "master", "exp_avg", ...
inline Values values_of(ShardedOptimizer& optimizer, std::string_view kind = "parameter") {
  Values values;
  for (const Parameter& parameter : optimizer.parameters())
    values[parameter.name()] = optimizer.read(parameter, kind);
  return values;
}

/// Everything that a step may change, bit by bit.
struct Snapshot {
  std::map<std::string, std::vector<std::uint32_t>> bits;
  std::map<std::string, std::int64_t> steps;
  bool operator==(const Snapshot&) const = default;
};

/// Collective. Of one parameter, or of all.
inline Snapshot snapshot_of(ShardedOptimizer& optimizer, std::string_view only = "") {
  Snapshot snapshot;
  for (const Parameter& parameter : optimizer.parameters()) {
    if (!only.empty() && parameter.name() != only) continue;
    for (const char* kind : {"parameter", "master", "exp_avg", "exp_avg_sq", "momentum_buffer"}) {
      auto& bits = snapshot.bits[parameter.name() + "/" + kind];
      for (const float value : optimizer.read(parameter, kind))
        bits.push_back(std::bit_cast<std::uint32_t>(value));
    }
    snapshot.steps[parameter.name()] = optimizer.step_count(parameter);
  }
  return snapshot;
}

/// The first element that is further off than `tolerance`, absolute or relative; empty: none.
inline std::string first_difference(const Values& values, const Numbers& expected,
                                    double tolerance = 1e-6) {
  for (const auto& [name, numbers] : expected) {
    const auto found = values.find(name);
    if (found == values.end() || found->second.size() != numbers.size()) return name + " is absent";
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double error = std::abs(static_cast<double>(found->second[i]) - numbers[i]);
      if (!(error <= tolerance * std::max(1.0, std::abs(numbers[i]))))
        return fmt::format("{}[{}] is {}, expected {}", name, i, found->second[i], numbers[i]);
    }
  }
  return {};
}

/// One process that trains by SGD on the mean gradient, in float64.
class Oracle {
 public:
  /// A gradient that does not depend on the weights; `parameter` counts as the optimizer does.
  using Gradient = std::function<double(int parameter, std::int64_t element)>;

  Oracle(Values start, std::vector<std::string> names) : names_(std::move(names)) {
    for (const auto& [name, values] : start) weights_[name].assign(values.begin(), values.end());
  }

  /// Collective: starts from an optimizer's parameters.
  static Oracle of(ShardedOptimizer& optimizer) {
    std::vector<std::string> names;
    for (const Parameter& parameter : optimizer.parameters()) names.push_back(parameter.name());
    return {values_of(optimizer), names};
  }

  /// Returns the norm of the mean gradient, before it was clipped.
  double step(double learning_rate, const Gradient& mean, double clip = 0) {
    double squares = 0;
    for_each([&](double&, int p, std::int64_t i) { squares += mean(p, i) * mean(p, i); });
    const double norm = std::sqrt(squares);
    const double factor = clip > 0 && norm > clip ? clip / norm : 1.0;
    for_each([&](double& w, int p, std::int64_t i) { w -= learning_rate * factor * mean(p, i); });
    return norm;
  }

  [[nodiscard]] const Numbers& weights() const { return weights_; }

 private:
  template <class Function>
  void for_each(const Function& function) {
    for (int p = 0; p < static_cast<int>(names_.size()); ++p) {
      auto& weights = weights_[names_[static_cast<std::size_t>(p)]];
      for (std::size_t i = 0; i < weights.size(); ++i)
        function(weights[i], p, static_cast<std::int64_t>(i));
    }
  }

  std::vector<std::string> names_;
  Numbers weights_;
};

/// A gradient without weights: of a step, an item of its batch, a parameter and an element.
inline float item_gradient(int step, int item, int parameter, std::int64_t element) {
  return noise(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(item),
               static_cast<std::uint64_t>(parameter), static_cast<std::uint64_t>(element));
}

/// How a rank ended.
struct Outcome {
  enum class Kind { fine, argument, remote, timeout, communication, other };
  Kind kind = Kind::fine;
  std::string text;
};

/// Runs ranks of which some fail; each failure ends all, as `launch` does it.
inline std::vector<Outcome> outcomes(int ranks, const std::function<void(ProcessGroup)>& body,
                                     const ThreadsOptions& threads = {}) {
  std::vector<Outcome> result(static_cast<std::size_t>(ranks));
  const auto communicators = make_threads(ranks, threads);
  run_ranks(ranks, [&](int rank) {
    Outcome& mine = result[static_cast<std::size_t>(rank)];
    const auto& communicator = communicators[static_cast<std::size_t>(rank)];
    const auto keep = [&](Outcome::Kind kind, const std::exception& error) {
      mine = {kind, error.what()};
      communicator->abort(error.what());
    };
    try {
      body(ProcessGroup(communicator));
    } catch (const InvalidArgument& error) {
      keep(Outcome::Kind::argument, error);
    } catch (const Timeout& error) {
      keep(Outcome::Kind::timeout, error);
    } catch (const RemoteError& error) {
      keep(Outcome::Kind::remote, error);
    } catch (const CommunicationError& error) {
      keep(Outcome::Kind::communication, error);
    } catch (const std::exception& error) {
      keep(Outcome::Kind::other, error);
    }
  });
  return result;
}

/// The text of the Error that `function` throws; empty when it throws none.
template <class ErrorType = InvalidArgument, class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return {};
}

/// What each rank saw, to be compared once all are done.
template <class T>
class PerRank {
 public:
  explicit PerRank(int ranks) : seen_(static_cast<std::size_t>(ranks)) {}
  T& operator[](const ProcessGroup& group) { return seen_[static_cast<std::size_t>(group.rank())]; }
  [[nodiscard]] const T& first() const { return seen_.front(); }
  [[nodiscard]] bool alike() const {
    return std::all_of(seen_.begin(), seen_.end(), [&](const T& t) { return t == seen_[0]; });
  }

 private:
  std::vector<T> seen_;
};

}  // namespace ration::test
