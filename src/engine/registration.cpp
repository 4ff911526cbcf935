// Groups, units and parameters: what the trainer registers, checked as it comes.

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "engine/engine.hpp"

namespace ration::detail {

Group Engine::add_group(Rule rule) {
  update::validate(rule);
  c_.groups.push_back(std::move(rule));
  hash_rules();
  return {this, static_cast<int>(c_.groups.size()) - 1};
}

Unit Engine::add_unit(std::string name, const std::vector<ParameterSpec>& specs,
                      UnitOptions options) {
  validate_name("unit", name);
  const int rank = c_.rank();
  for (const UnitInfo& unit : registered_.units) {
    if (unit.name == name) {
      throw InvalidArgument(fmt::format(
          "rank {}: unit \"{}\" is already registered; give each unit its own name", rank, name));
    }
  }
  if (static_cast<bool>(options.acquire) != static_cast<bool>(options.release)) {
    throw InvalidArgument(
        fmt::format("rank {}: unit \"{}\": acquire and release come together", rank, name));
  }
  if (c_.groups.empty()) {
    throw InvalidArgument(
        fmt::format("rank {}: unit \"{}\": call add_group before add_unit", rank, name));
  }

  // Checked whole before anything is kept: a refused unit leaves nothing behind.
  const int u = static_cast<int>(registered_.units.size());
  std::set<std::string, std::less<>> names;
  struct Kept {
    const std::string* name;
    void* data;
    void* gradient;
  };
  std::optional<bool> gives_data;
  std::optional<bool> gives_gradient;
  std::vector<ParameterInfo> infos;
  std::vector<TiedName> tied;
  std::vector<Kept> kept;
  for (const ParameterSpec& spec : specs) {
    const auto refuse = [&](std::string_view why) {
      throw InvalidArgument(fmt::format("rank {}: parameter \"{}\": {}", rank, spec.name, why));
    };
    validate_name("parameter", spec.name);
    if (names_.contains(spec.name) || !names.insert(spec.name).second) {
      refuse("is already registered; give each parameter its own name, or say tied_to");
    }
    if (!spec.tied_to.empty()) {
      const auto home = names_.find(spec.tied_to);
      int index = home == names_.end() ? -1 : home->second;
      for (std::size_t i = 0; i < infos.size() && index < 0; ++i) {
        if (infos[i].name == spec.tied_to)
          index = static_cast<int>(registered_.parameters.size() + i);
      }
      for (const TiedName& other : tied) {
        if (other.name == spec.tied_to) index = other.parameter;
      }
      if (index < 0)
        refuse(fmt::format("tied to \"{}\", which is not registered before it", spec.tied_to));
      const auto count = static_cast<std::int64_t>(registered_.parameters.size());
      const ParameterInfo& other =
          index < count ? registered_.parameters[index] : infos[index - count];
      if (!spec.shape.empty() && spec.shape != other.shape) {
        refuse(fmt::format("has shape [{}], but \"{}\", to which it is tied, has [{}]",
                           fmt::join(spec.shape, ", "), spec.tied_to,
                           fmt::join(other.shape, ", ")));
      }
      if (spec.dtype && *spec.dtype != other.dtype) {
        refuse(fmt::format("has type {}, but \"{}\", to which it is tied, has {}",
                           name_of(*spec.dtype), spec.tied_to, name_of(other.dtype)));
      }
      if (spec.data || spec.gradient) {
        refuse(fmt::format("is tied to \"{}\" and shares its memory; give data and gradient there",
                           spec.tied_to));
      }
      tied.push_back({.name = spec.name, .unit = u, .parameter = index});
      continue;
    }
    ParameterInfo info{.name = spec.name, .shape = spec.shape, .unit = u};
    info.count = count_elements(spec.name, spec.shape);
    info.dtype = spec.dtype.value_or(c_.config.precision.parameter);
    if (!is_parameter_type(info.dtype))
      refuse(fmt::format("type {} is not one of f32, bf16, f16", name_of(info.dtype)));
    info.trainable = spec.trainable;
    if (spec.group.engine_ && spec.group.engine_ != this)
      refuse("its group belongs to another optimizer");
    info.group = spec.group.engine_ ? spec.group.index_ : 0;
    // An empty tensor has no memory, whatever its pointers say.
    const bool empty = info.count == 0;
    void* const data = empty ? nullptr : spec.data;
    void* const gradient = empty ? nullptr : spec.gradient;
    if (data && data == gradient) refuse("its data and its gradient are the same memory");
    for (const auto& [pointer, what] : {std::pair{data, "data"}, std::pair{gradient, "gradient"}}) {
      if (!pointer) continue;
      std::string_view owner;
      for (std::size_t p = 0; p < c_.trainer_data.size(); ++p) {
        if (c_.trainer_data[p] == pointer || c_.trainer_gradient[p] == pointer)
          owner = registered_.parameters[p].name;
      }
      for (const Kept& other : kept) {
        if (other.data == pointer || other.gradient == pointer) owner = *other.name;
      }
      if (!owner.empty()) {
        refuse(
            fmt::format("its {} is the same memory as that of \"{}\"; register a tensor once, "
                        "further names with tied_to",
                        what, owner));
      }
    }
    if (!empty) {
      const bool alike = gives_data.value_or(data != nullptr) == (data != nullptr);
      const bool gradients_alike =
          !info.trainable || gives_gradient.value_or(gradient != nullptr) == (gradient != nullptr);
      if (!alike || !gradients_alike)
        refuse("in one unit either all parameters give data (and gradient) or none does");
      gives_data = data != nullptr;
      if (info.trainable) gives_gradient = gradient != nullptr;
    }
    kept.push_back({&spec.name, data, gradient});
    infos.push_back(std::move(info));
  }
  UnitMemory memory{.trainer_data = gives_data.value_or(false),
                    .trainer_gradient = gives_gradient.value_or(false),
                    .hooks = static_cast<bool>(options.acquire)};
  if (memory.trainer_data && memory.hooks) {
    throw InvalidArgument(fmt::format(
        "rank {}: unit \"{}\": give data, or acquire and release, not both", rank, name));
  }

  UnitInfo unit{.name = std::move(name), .keep_whole = options.keep_whole};
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const int p = static_cast<int>(registered_.parameters.size());
    names_.emplace(infos[i].name, p);
    unit.parameters.push_back(p);
    wanted_trainable_.push_back(infos[i].trainable);
    c_.trainer_data.push_back(kept[i].data);
    c_.trainer_gradient.push_back(kept[i].gradient);
    c_.masked.push_back(0);
    step_counts_.push_back(0);
    registered_.parameters.push_back(std::move(infos[i]));
  }
  for (TiedName& name_of_tied : tied) {
    names_.emplace(name_of_tied.name, name_of_tied.parameter);
    registered_.tied.push_back(std::move(name_of_tied));
  }
  registered_.units.push_back(std::move(unit));
  c_.unit_options.push_back(std::move(options));
  c_.unit_memory.push_back(memory);
  return {this, u};
}

std::vector<Unit> Engine::add_units(std::vector<ParameterSpec> specs,
                                    std::int64_t elements_per_unit) {
  if (elements_per_unit < 1) {
    throw InvalidArgument(
        fmt::format("add_units: elements_per_unit is {}, must be at least 1", elements_per_unit));
  }
  std::vector<Unit> result;
  std::vector<ParameterSpec> part;
  std::int64_t elements = 0;
  const auto close = [&] {
    if (part.empty()) return;
    result.push_back(add_unit(fmt::format("unit.{}", registered_.units.size()), part, {}));
    part.clear();
    elements = 0;
  };
  for (ParameterSpec& spec : specs) {
    const std::int64_t count = spec.tied_to.empty() ? count_elements(spec.name, spec.shape) : 0;
    if (elements + count > elements_per_unit) close();
    elements += count;
    part.push_back(std::move(spec));
  }
  close();
  return result;
}

Parameter Engine::find(std::string_view name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    throw InvalidArgument(fmt::format("rank {}: no parameter is named \"{}\"", c_.rank(), name));
  }
  return {this, found->second};
}

Parameter Engine::find_in_unit(int unit, std::string_view name) const {
  const auto found = names_.find(name);
  if (found != names_.end()) {
    if (registered_.parameters[found->second].unit == unit) return {this, found->second};
    for (const TiedName& tied : registered_.tied) {
      if (tied.unit == unit && tied.name == name) return {this, tied.parameter};
    }
  }
  throw InvalidArgument(fmt::format("rank {}: unit \"{}\" has no parameter \"{}\"", c_.rank(),
                                    registered_.units[unit].name, name));
}

std::vector<Parameter> Engine::parameters() const {
  std::vector<Parameter> result;
  for (int p = 0; p < static_cast<int>(registered_.parameters.size()); ++p)
    result.push_back({this, p});
  return result;
}

std::vector<Unit> Engine::units() const {
  std::vector<Unit> result;
  // A unit handle lets its owner change things, so it carries the engine itself.
  for (int u = 0; u < static_cast<int>(registered_.units.size()); ++u)
    result.push_back({const_cast<Engine*>(this), u});
  return result;
}

void Engine::set_rule(int group, Rule rule) {
  update::validate(rule);
  if (rule.index() != c_.groups[group].index() ||
      update::name_of(rule) != update::name_of(c_.groups[group])) {
    throw InvalidArgument(
        fmt::format("rank {}: group {}: its rule is {} and cannot become {}; add a group instead",
                    c_.rank(), group, update::name_of(c_.groups[group]), update::name_of(rule)));
  }
  if (update::state_names(rule) != update::state_names(c_.groups[group])) {
    throw InvalidArgument(
        fmt::format("rank {}: group {}: the options ask for other state than the group was made "
                    "with (SGD's momentum "
                    "from or to 0); add a group instead",
                    c_.rank(), group));
  }
  c_.groups[group] = std::move(rule);
  hash_rules();
}

void Engine::set_learning_rate(int group, double value) {
  Rule rule = c_.groups[group];
  update::set_learning_rate(rule, value);
  update::validate(rule);
  c_.groups[group] = std::move(rule);
  hash_rules();
}

void Engine::set_trainable(const Parameter& parameter, bool trainable) {
  const int p = own(parameter);
  wanted_trainable_[p] = trainable;
  // Where there is gradient memory and state, a mask is enough; otherwise relayout has to make it.
  c_.masked[p] = registered_.parameters[p].trainable && !trainable;
}

StatePlan Engine::plan() const {
  if (c_.state) return c_.state->plan();
  Layout layout = registered_;
  layout.world = c_.world();
  lay_out(layout);
  return plan_state(layout, c_.config, c_.groups, c_.unit_memory);
}

int Engine::own(const Parameter& parameter) const {
  if (parameter.engine_ != this) {
    throw InvalidArgument(fmt::format("rank {}: the parameter belongs to {}", c_.rank(),
                                      parameter.engine_ ? "another optimizer" : "no optimizer"));
  }
  return parameter.index_;
}

}  // namespace ration::detail
