#pragma once
// A parameter under update in every combination of types, and the rules in double.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "update/update.hpp"

namespace ration::testing {

inline const Rule kRules[] = {
    AdamW{.learning_rate = 3e-3, .weight_decay = 0.1},
    Adam{.learning_rate = 3e-3, .weight_decay = 0.05},
    SGD{.learning_rate = 0.05, .weight_decay = 0.01},
    SGD{.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
    SGD{.learning_rate = 0.05, .momentum = 0.9, .nesterov = true},
    Adagrad{.learning_rate = 0.05,
            .learning_rate_decay = 0.1,
            .weight_decay = 0.01,
            .initial_accumulator = 0.1},
    Lion{.learning_rate = 1e-3, .weight_decay = 0.1},
};

/// What is kept in which type.
struct Types {
  DType gradient = DType::f32;
  DType weight = DType::f32;
  update::WeightKind kind = update::WeightKind::own;
  DType state = DType::f32;
};

inline std::string describe(const Types& types) {
  static constexpr const char* kKinds[] = {"own", "fp32", "split"};
  return "gradient " + std::string(name_of(types.gradient)) + ", weight " +
         std::string(name_of(types.weight)) + ", master " +
         kKinds[static_cast<std::size_t>(types.kind)] + ", state " +
         std::string(name_of(types.state));
}

inline std::vector<Types> all_types() {
  using update::WeightKind;
  std::vector<Types> all;
  for (const DType gradient : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      all.push_back({gradient, DType::f32, WeightKind::own, state});
      all.push_back({gradient, DType::f32, WeightKind::fp32, state});
      all.push_back({gradient, DType::bf16, WeightKind::fp32, state});
      all.push_back({gradient, DType::f16, WeightKind::fp32, state});
      all.push_back({gradient, DType::bf16, WeightKind::split, state});
    }
  }
  return all;
}

inline float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = scale * (static_cast<float>(random() % 2000001) * 1e-6f - 1.0f);
  }
  return values;
}

/// The arrays of one parameter; bytes, so that digests can be taken.
struct Model {
  Model(const Rule& rule, Types of, const std::vector<float>& weights)
      : types(of),
        weight(weights.size() * size_of(types.weight)),
        master(weights.size() * 4),
        gradient(weights.size() * size_of(types.gradient)) {
    for (std::size_t s = 0; s < update::state_names(rule).size(); ++s) {
      state.emplace_back(weights.size() * size_of(types.state));
      for (std::size_t i = 0; i < weights.size(); ++i) {
        set(state.back(), types.state, i, update::initial_state(rule, s));
      }
    }
    update::store_weights(run(0, weights.size(), 1), weights.data());
  }

  /// The piece [first, first + count).
  update::Run run(std::size_t first, std::size_t count, std::int64_t step, float factor = 1.0f) {
    update::Run run;
    run.count = count;
    run.gradient = gradient.data() + first * size_of(types.gradient);
    run.gradient_type = types.gradient;
    run.factor = factor;
    run.weight = weight.data() + first * size_of(types.weight);
    run.weight_type = types.weight;
    run.weight_kind = types.kind;
    run.master = master.data() + first * (types.kind == update::WeightKind::split ? 2 : 4);
    for (std::size_t s = 0; s < state.size(); ++s) {
      run.state[s] = state[s].data() + first * size_of(types.state);
    }
    run.state_type = types.state;
    run.key = 0x1234567890abcdefu;
    run.first_element = first;
    run.step = step;
    return run;
  }

  std::size_t count() const { return weight.size() / size_of(types.weight); }

  void set_gradient(const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) set(gradient, types.gradient, i, values[i]);
  }

  std::vector<float> weights() {
    std::vector<float> values(count());
    update::load_weights(run(0, count(), 1), values.data());
    return values;
  }

  float model_weight(std::size_t i) const { return get(weight, types.weight, i); }
  float state_at(std::size_t s, std::size_t i) const { return get(state[s], types.state, i); }
  float gradient_at(std::size_t i) const { return get(gradient, types.gradient, i); }

  static void set(std::vector<std::byte>& bytes, DType type, std::size_t i, float value) {
    if (type == DType::f32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] =
          type == DType::bf16 ? bf16(value).bits : f16(value).bits;
    }
  }

  static float get(const std::vector<std::byte>& bytes, DType type, std::size_t i) {
    if (type == DType::f32) return reinterpret_cast<const float*>(bytes.data())[i];
    const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(bytes.data())[i];
    if (type == DType::bf16) return float_of(std::uint32_t{bits} << 16);
    f16 half;
    half.bits = bits;
    return static_cast<float>(half);
  }

  Types types;
  std::vector<std::byte> weight, master, gradient;
  std::vector<std::vector<std::byte>> state;
};

/// One element under a rule in double, as the papers and PyTorch's documentation write it.
struct Oracle {
  double w = 0;
  double a = 0, b = 0;  // the state

  void update(const Rule& rule, double g, std::int64_t step) {
    std::visit([&](const auto& r) { apply(r, g, step); }, rule);
  }

 private:
  void adam(double lr, double beta1, double beta2, double epsilon, double g, std::int64_t step) {
    a = beta1 * a + (1 - beta1) * g;
    b = beta2 * b + (1 - beta2) * g * g;
    const auto t = static_cast<double>(step);
    const double mean = a / (1 - std::pow(beta1, t));
    const double variance = b / (1 - std::pow(beta2, t));
    w -= lr * mean / (std::sqrt(variance) + epsilon);
  }
  void apply(const AdamW& r, double g, std::int64_t step) {
    w *= 1 - r.learning_rate * r.weight_decay;
    adam(r.learning_rate, r.beta1, r.beta2, r.epsilon, g, step);
  }
  void apply(const Adam& r, double g, std::int64_t step) {
    adam(r.learning_rate, r.beta1, r.beta2, r.epsilon, g + r.weight_decay * w, step);
  }
  void apply(const SGD& r, double g, std::int64_t step) {
    g += r.weight_decay * w;
    if (r.momentum != 0) {
      a = step == 1 ? g : r.momentum * a + (1 - r.dampening) * g;
      g = r.nesterov ? g + r.momentum * a : a;
    }
    w -= r.learning_rate * g;
  }
  void apply(const Adagrad& r, double g, std::int64_t step) {
    g += r.weight_decay * w;
    a += g * g;
    const double lr = r.learning_rate / (1 + static_cast<double>(step - 1) * r.learning_rate_decay);
    w -= lr * g / (std::sqrt(a) + r.epsilon);
  }
  void apply(const Lion& r, double g, std::int64_t) {
    const double c = r.beta1 * a + (1 - r.beta1) * g;
    w = w * (1 - r.learning_rate * r.weight_decay) - r.learning_rate * ((c > 0) - (c < 0));
    a = r.beta2 * a + (1 - r.beta2) * g;
  }
  void apply(const CustomRule&, double, std::int64_t) {}
};

}  // namespace ration::testing
