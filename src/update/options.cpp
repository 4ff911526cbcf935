// A rule's options: their names, their bounds, their bytes.

#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "update/update.hpp"

namespace ration::update {
namespace {

// Calls visit(name, value) for every number of a rule; where the rule can be changed, `value` can.
template <class R, class Visit>
void for_each_option(R& rule, const Visit& visit) {
  using Plain = std::remove_const_t<R>;
  visit("learning_rate", rule.learning_rate);
  if constexpr (std::is_same_v<Plain, Adam> || std::is_same_v<Plain, AdamW>) {
    visit("beta1", rule.beta1);
    visit("beta2", rule.beta2);
    visit("epsilon", rule.epsilon);
    visit("weight_decay", rule.weight_decay);
  } else if constexpr (std::is_same_v<Plain, SGD>) {
    visit("momentum", rule.momentum);
    visit("dampening", rule.dampening);
    double nesterov = rule.nesterov ? 1.0 : 0.0;
    visit("nesterov", nesterov);
    if constexpr (!std::is_const_v<R>) rule.nesterov = nesterov != 0.0;
    visit("weight_decay", rule.weight_decay);
  } else if constexpr (std::is_same_v<Plain, Adagrad>) {
    visit("learning_rate_decay", rule.learning_rate_decay);
    visit("epsilon", rule.epsilon);
    visit("weight_decay", rule.weight_decay);
    visit("initial_accumulator", rule.initial_accumulator);
  } else if constexpr (std::is_same_v<Plain, Lion>) {
    visit("beta1", rule.beta1);
    visit("beta2", rule.beta2);
    visit("weight_decay", rule.weight_decay);
  } else {
    static_assert(std::is_same_v<Plain, CustomRule>, "a new rule lists its options here");
  }
}

void append(std::string_view text, std::vector<std::byte>& bytes) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), data, data + text.size());
  bytes.push_back(std::byte{0});
}

void append(double value, std::vector<std::byte>& bytes) {
  std::byte data[sizeof value];
  std::memcpy(data, &value, sizeof value);
  bytes.insert(bytes.end(), data, data + sizeof value);
}

void validate_rule(const SGD& rule) {
  if (rule.nesterov && (rule.momentum <= 0.0 || rule.dampening != 0.0)) {
    throw InvalidArgument(
        fmt::format("SGD: nesterov needs a momentum above 0 and no dampening; they are {} and {}",
                    rule.momentum, rule.dampening));
  }
}

void validate_rule(const CustomRule& rule) {
  if (rule.name.empty()) {
    throw InvalidArgument("CustomRule: the name is empty; ranks compare rules by it");
  }
  if (!rule.update) {
    throw InvalidArgument(fmt::format("{}: the update function is not set", rule.name));
  }
  if (rule.state.size() > kMaxStates) {
    throw InvalidArgument(
        fmt::format("{}: {} state arrays; at most {}", rule.name, rule.state.size(), kMaxStates));
  }
  for (const std::string& state : rule.state) {
    if (state == "parameter" || state == "master") {
      throw InvalidArgument(fmt::format(
          "{}: a state array cannot be called \"{}\", which names the weights", rule.name, state));
    }
  }
  for (std::size_t i = 0; i < rule.state.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (rule.state[i] == rule.state[j]) {
        throw InvalidArgument(
            fmt::format("{}: two state arrays are called \"{}\"", rule.name, rule.state[i]));
      }
    }
    if (rule.state[i].empty()) {
      throw InvalidArgument(fmt::format("{}: state array {} has no name", rule.name, i));
    }
  }
}

template <class R>
void validate_rule(const R&) {}

}  // namespace

std::vector<std::string> state_names(const Rule& rule) {
  return std::visit(
      [](const auto& r) -> std::vector<std::string> {
        using R = std::decay_t<decltype(r)>;
        if constexpr (std::is_same_v<R, Adam> || std::is_same_v<R, AdamW>) {
          return {"exp_avg", "exp_avg_sq"};
        } else if constexpr (std::is_same_v<R, SGD>) {
          if (r.momentum == 0.0) return {};
          return {"momentum_buffer"};
        } else if constexpr (std::is_same_v<R, Adagrad>) {
          return {"sum"};
        } else if constexpr (std::is_same_v<R, Lion>) {
          return {"exp_avg"};
        } else {
          static_assert(std::is_same_v<R, CustomRule>, "a new rule names its state here");
          return r.state;
        }
      },
      rule);
}

double learning_rate(const Rule& rule) {
  return std::visit([](const auto& r) { return r.learning_rate; }, rule);
}

void set_learning_rate(Rule& rule, double value) {
  std::visit([value](auto& r) { r.learning_rate = value; }, rule);
}

std::string name_of(const Rule& rule) {
  return std::visit(
      [](const auto& r) -> std::string {
        using R = std::decay_t<decltype(r)>;
        if constexpr (std::is_same_v<R, AdamW>) {
          return "AdamW";
        } else if constexpr (std::is_same_v<R, Adam>) {
          return "Adam";
        } else if constexpr (std::is_same_v<R, SGD>) {
          return "SGD";
        } else if constexpr (std::is_same_v<R, Adagrad>) {
          return "Adagrad";
        } else if constexpr (std::is_same_v<R, Lion>) {
          return "Lion";
        } else {
          return r.name;
        }
      },
      rule);
}

void validate(const Rule& rule) {
  const std::string name = name_of(rule);
  std::visit(
      [&](const auto& r) {
        validate_rule(r);
        for_each_option(r, [&](std::string_view option, double value) {
          if (!std::isfinite(value) || value < 0.0) {
            throw InvalidArgument(fmt::format("{}: {} is {}; it must be finite and not negative",
                                              name, option, value));
          }
          if (option.starts_with("beta") && value >= 1.0) {
            throw InvalidArgument(
                fmt::format("{}: {} is {}; it must be in [0, 1)", name, option, value));
          }
        });
      },
      rule);
}

void append_options(const Rule& rule, std::vector<std::byte>& bytes) {
  append(name_of(rule), bytes);
  append(static_cast<double>(rule.index()), bytes);
  for (const std::string& state : state_names(rule)) append(state, bytes);
  std::visit(
      [&](const auto& r) {
        for_each_option(r, [&](std::string_view, double value) { append(value, bytes); });
      },
      rule);
}

std::map<std::string, double> options(const Rule& rule) {
  std::map<std::string, double> result;
  std::visit(
      [&](const auto& r) {
        for_each_option(r,
                        [&](std::string_view name, double value) { result.emplace(name, value); });
      },
      rule);
  return result;
}

void set_options(Rule& rule, const std::map<std::string, double>& values) {
  Rule changed = rule;
  std::visit(
      [&](auto& r) {
        for_each_option(r, [&](std::string_view name, double& value) {
          const auto given = values.find(std::string(name));
          if (given != values.end()) value = given->second;
        });
      },
      changed);
  validate(changed);
  rule = changed;
}

float initial_state(const Rule& rule, std::size_t state) {
  const auto* adagrad = std::get_if<Adagrad>(&rule);
  return adagrad != nullptr && state == 0 ? static_cast<float>(adagrad->initial_accumulator) : 0.0f;
}

}  // namespace ration::update
