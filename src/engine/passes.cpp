// Micro-steps and passes: what the trainer calls between two steps, in which order it may.

#include <cmath>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/log.hpp"
#include "engine/engine.hpp"

namespace ration::detail {

void Engine::mark_broken(std::string reason) {
  if (broken_.empty()) broken_ = std::move(reason);
}

void Engine::require_usable() const {
  if (!broken_.empty())
    throw Error(
        fmt::format("rank {}: the optimizer is broken: {}; load a checkpoint or make a new one",
                    c_.rank(), broken_));
  if (!ready_)
    throw InvalidArgument(
        fmt::format("rank {}: the optimizer has no values yet; call initialize first", c_.rank()));
}

void Engine::require_between_steps(std::string_view call) const {
  if (micro_open_ || reduced_) {
    throw InvalidArgument(fmt::format("rank {}: {} in the middle of a step; end it with {} first",
                                      c_.rank(), call, reduced_ ? "apply" : "step"));
  }
  if (evaluating_) {
    throw InvalidArgument(
        fmt::format("rank {}: {} in the middle of an evaluation; end it first", c_.rank(), call));
  }
}

void Engine::require_laid_out(int unit) const {
  if (unit < static_cast<int>(c_.layout.units.size())) return;
  throw InvalidArgument(
      fmt::format("rank {}: unit \"{}\" was added after initialize; call relayout first", c_.rank(),
                  registered_.units[unit].name));
}

void Engine::require_released(std::string_view call) const {
  if (const auto unit = gatherer_.any_held()) {
    throw InvalidArgument(
        fmt::format("rank {}: {} while a guard of unit \"{}\" is alive; release it first",
                    c_.rank(), call, registered_.units[*unit].name));
  }
}

MicroStep Engine::micro_step(int index, int count, const MicroStepOptions& options) {
  require_usable();
  require_released("micro_step");
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        fmt::format("rank {}: micro_step({}, {}): {}", c_.rank(), index, count, why));
  };
  if (reduced_) refuse("the gradients are reduced; call apply first");
  if (evaluating_) refuse("an evaluation is under way; end it first");
  if (count < 1 || count > c_.config.micro_steps) {
    refuse(
        fmt::format("the count must be 1 to {}; raise Config::micro_steps", c_.config.micro_steps));
  }
  if (index < 0 || index >= count) refuse("the index must be below the count");
  const int expected = micro_open_ ? micro_index_ + 1 : 0;
  if (index != expected) refuse(fmt::format("micro-step {} is next", expected));
  if (micro_open_ && count != micro_count_)
    refuse(fmt::format("this step began with a count of {}", micro_count_));
  if (!(options.weight >= 0) || std::isinf(options.weight))
    refuse(fmt::format("the weight is {}, must be finite and not negative", options.weight));
  if (c_.layout.units.size() != registered_.units.size())
    refuse("units were added; call relayout first");

  if (micro_open_) close_micro_step();
  micro_open_ = true;
  micro_index_ = index;
  micro_count_ = count;
  backward_ = false;
  has_batch_ = options.has_batch;
  if (options.has_batch) {
    weight_ += options.weight;
    ++batches_;
  }
  gatherer_.begin_pass(Pass::forward);
  reducer_.begin_micro_step(index, count);
  return MicroStep(this);
}

void Engine::begin_backward() {
  require_usable();
  if (!micro_open_ || backward_) {
    throw InvalidArgument(
        fmt::format("rank {}: begin_backward {}", c_.rank(),
                    micro_open_ ? "said twice in one micro-step" : "outside a micro-step"));
  }
  backward_ = true;
  gatherer_.begin_pass(Pass::backward);
}

void Engine::require_batch(std::string_view what, std::string_view name) const {
  if (has_batch_) return;
  throw InvalidArgument(
      fmt::format("rank {}: {} \"{}\": gradients in a micro-step that said has_batch = false; "
                  "leave out its backward",
                  c_.rank(), what, name));
}

void Engine::close_micro_step() {
  if (has_batch_ && !reducer_.any_ready() && !warned_of_no_gradient_) {
    warned_of_no_gradient_ = true;
    log::warning(
        "micro-step {} had a batch, but no gradient was said to be ready: it counts as zero (is "
        "gradients_ready "
        "missing?)",
        micro_index_);
  }
  // Where gathers are matched, this rank takes part in a backward it did not have.
  if (!backward_) begin_backward();
  // A reduce waits for peers, which may wait for a gather first: so the gathers come before.
  gatherer_.join_pass();
  reducer_.finish_micro_step();
  gatherer_.begin_pass(Pass::none);
  if (!c_.config.overlap) gatherer_.settle();
}

Evaluation Engine::evaluation() {
  require_usable();
  require_between_steps("evaluation");
  evaluating_ = true;
  gatherer_.begin_pass(Pass::evaluation);
  return Evaluation(this);
}

void Engine::end_evaluation(bool join) {
  evaluating_ = false;
  if (join) {
    gatherer_.begin_pass(Pass::none);
  } else {
    gatherer_.close();
  }
}

Gathered Engine::gather(int unit) {
  require_usable();
  c_.progress();
  require_laid_out(unit);
  gatherer_.gather(unit);
  return Gathered(this, unit);
}

void Engine::release(int unit, bool by_exception) {
  if (by_exception)
    mark_broken(fmt::format("an exception destroyed the guard of unit \"{}\"",
                            registered_.units[unit].name));
  gatherer_.release(unit);
}

const void* Engine::address(int unit, const Parameter& parameter, DType type) const {
  const int p = own(parameter);
  const ParameterInfo& info = registered_.parameters[p];
  if (info.unit != unit) {
    throw InvalidArgument(fmt::format(
        "rank {}: parameter \"{}\": its data is in unit \"{}\", asked for from a guard of \"{}\"",
        c_.rank(), info.name, registered_.units[info.unit].name, registered_.units[unit].name));
  }
  if (info.dtype != type) {
    throw InvalidArgument(fmt::format("rank {}: parameter \"{}\": data asked for as {}, it is {}",
                                      c_.rank(), info.name, name_of(type), name_of(info.dtype)));
  }
  return gatherer_.address(p);
}

void* Engine::gradient(int unit, const Parameter& parameter, DType type, bool overwrite) {
  require_usable();
  c_.progress();
  const int p = own(parameter);
  const ParameterInfo& info = registered_.parameters[p];
  if (!backward_ || !micro_open_) {
    throw InvalidArgument(
        fmt::format("rank {}: parameter \"{}\": gradient asked for outside a backward; call "
                    "begin_backward first",
                    c_.rank(), info.name));
  }
  if (info.unit != unit) {
    throw InvalidArgument(fmt::format(
        "rank {}: parameter \"{}\": its gradient belongs to unit \"{}\", asked for from \"{}\"",
        c_.rank(), info.name, registered_.units[info.unit].name, registered_.units[unit].name));
  }
  require_laid_out(unit);
  const DType kept = c_.state->plan(c_.parameter(p).flat).gradient_type;
  if (info.trainable && kept != type) {
    throw InvalidArgument(
        fmt::format("rank {}: parameter \"{}\": gradient asked for as {}, it is {}", c_.rank(),
                    info.name, name_of(type), name_of(kept)));
  }
  require_batch("parameter", info.name);
  return reducer_.gradient(p, overwrite);
}

void Engine::gradients_ready(int unit) {
  require_usable();
  c_.progress();
  if (!backward_ || !micro_open_) {
    throw InvalidArgument(fmt::format(
        "rank {}: unit \"{}\": gradients_ready outside a backward; call begin_backward first",
        c_.rank(), registered_.units[unit].name));
  }
  require_laid_out(unit);
  require_batch("unit", registered_.units[unit].name);
  reducer_.unit_ready(unit);
}

void Engine::gradient_ready(int unit, const Parameter& parameter) {
  require_usable();
  c_.progress();
  const int p = own(parameter);
  if (!backward_ || !micro_open_) {
    throw InvalidArgument(fmt::format(
        "rank {}: parameter \"{}\": gradient_ready outside a backward; call begin_backward first",
        c_.rank(), registered_.parameters[p].name));
  }
  if (registered_.parameters[p].unit != unit) {
    throw InvalidArgument(fmt::format(
        "rank {}: parameter \"{}\" belongs to unit \"{}\", not to \"{}\"", c_.rank(),
        registered_.parameters[p].name, registered_.units[registered_.parameters[p].unit].name,
        registered_.units[unit].name));
  }
  require_laid_out(unit);
  require_batch("parameter", registered_.parameters[p].name);
  reducer_.parameter_ready(p);
}

}  // namespace ration::detail
