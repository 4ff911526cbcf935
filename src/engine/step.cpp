// The step: one header, one decision, one walk over the state.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "core/log.hpp"
#include "core/trace.hpp"
#include "engine/background_save.hpp"
#include "engine/engine.hpp"

namespace ration::detail {
namespace {

bool is_used(const std::vector<std::uint64_t>& bits, int parameter) {
  const auto word = static_cast<std::size_t>(parameter) / 64;
  return word < bits.size() && ((bits[word] >> (parameter % 64)) & 1u);
}

void validate_clip(const std::optional<double>& clip) {
  if (clip && !(*clip > 0))
    throw InvalidArgument(fmt::format("clip_norm is {}, must be above 0", *clip));
}

}  // namespace

void Engine::hash_rules() {
  rule_bytes_.clear();
  for (const Rule& rule : c_.groups) update::append_options(rule, rule_bytes_);
  rules_hash_ = XXH3_64bits(rule_bytes_.data(), rule_bytes_.size());
}

std::uint64_t Engine::options_hash() const {
  const std::uint64_t hash = XXH3_64bits_withSeed(c_.masked.data(), c_.masked.size(), rules_hash_);
  return XXH3_64bits_withSeed(&loss_scale_, sizeof loss_scale_, hash);
}

HeaderRecord& Engine::record(Call call, const std::optional<double>& clip_norm) {
  HeaderRecord& r = buffers_.mine;
  r.call = call;
  r.step = steps_;
  r.micro_steps = micro_count_;
  r.options = options_hash();
  r.learning_rates.clear();
  for (const Rule& rule : c_.groups) r.learning_rates.push_back(update::learning_rate(rule));
  r.clip_norm = clip_norm.value_or(-1.0);
  r.weight = weight_;
  r.batches = batches_;
  r.squared_norm = reducer_.squared_norm();
  r.stop = stop_requested_ && stop_requested_();
  r.skip = false;
  r.changed = false;
  r.save_failed = background_ && background_->has_failed();
  r.metrics.clear();
  r.refused.clear();
  const std::vector<char>& used = reducer_.used();
  r.used.assign((used.size() + 63) / 64, 0);
  for (std::size_t p = 0; p < used.size(); ++p) {
    if (used[p]) r.used[p / 64] |= std::uint64_t{1} << (p % 64);
  }
  if (c_.rank() == 0) {
    r.forward_order = gatherer_.forward_order().proposal().value_or(std::vector<int>{});
    r.backward_order = gatherer_.backward_order().proposal().value_or(std::vector<int>{});
    r.reduce_order = reducer_.order().proposal().value_or(std::vector<int>{});
  }
  return r;
}

Engine::Decision Engine::decide(const HeaderResult& agreed,
                                const std::optional<double>& clip_norm) const {
  Decision d;
  d.finite = std::isfinite(agreed.squared_norm);
  d.skipped = !d.finite || agreed.skip || agreed.batches == 0 || agreed.weight == 0;
  d.mean = agreed.weight > 0 ? 1.0 / (loss_scale_ * agreed.weight) : 0.0;
  d.norm = std::sqrt(agreed.squared_norm) * d.mean;
  const double clip = clip_norm && d.norm > *clip_norm ? *clip_norm / d.norm : 1.0;
  d.factor = static_cast<float>(clip * d.mean);
  return d;
}

StepReport Engine::step(const StepOptions& options) {
  require_usable();
  require_released("step");
  validate_clip(options.clip_norm);
  if (reduced_)
    throw InvalidArgument(
        fmt::format("rank {}: step after reduce_gradients; call apply", c_.rank()));
  if (!micro_open_)
    throw InvalidArgument(
        fmt::format("rank {}: step without a micro_step; call micro_step first", c_.rank()));
  if (micro_index_ + 1 != micro_count_) {
    throw InvalidArgument(fmt::format("rank {}: step after micro-step {} of {}", c_.rank(),
                                      micro_index_ + 1, micro_count_));
  }
  close_micro_step();
  gatherer_.settle();
  reducer_.wait();
  HeaderRecord& mine = record(Call::step, options.clip_norm);
  mine.metrics = options.metrics;
  HeaderResult agreed;
  try {
    const trace::Span span("header", "", "compute");
    agreed = exchange(c_.reduce->control(), mine, buffers_, control_bytes_);
  } catch (const InvalidArgument&) {
    end_step();  // on all ranks alike: the gradients are dropped, nothing else changed
    throw;
  }
  StepReport report = finish(agreed, decide(agreed, options.clip_norm));
  throw_failed_save(agreed);
  return report;
}

StepReport Engine::finish(const HeaderResult& agreed, const Decision& decision) {
  if (!decision.skipped) update(agreed, decision.factor);
  StepReport report;
  report.step = ++steps_;
  ++changes_;
  report.gradient_norm = decision.norm;
  report.skipped = decision.skipped;
  report.batches = agreed.batches;
  report.total_weight = agreed.weight;
  report.stop_requested = agreed.stop;
  report.metrics = agreed.metrics;
  back_off_or_grow(agreed, decision);
  report.loss_scale = loss_scale_;
  log::debug("step {}: norm {}, weight {}, {}", report.step, report.gradient_norm,
             report.total_weight, report.skipped ? "skipped" : "updated");
  adopt_orders(agreed);
  end_step();
  return report;
}

void Engine::end_step() {
  reducer_.clear();
  micro_open_ = false;
  backward_ = false;
  micro_index_ = -1;
  micro_count_ = 1;
  weight_ = 0;
  batches_ = 0;
  reduced_ = false;
  changed_ = false;
}

void Engine::update(const HeaderResult& agreed, float factor) {
  gatherer_.invalidate();
  for (int p = 0; p < static_cast<int>(step_counts_.size()); ++p) {
    if (is_used(agreed.used, p) && !c_.masked[p]) ++step_counts_[p];
  }
  if (c_.state->in_tiles()) {
    update_on_disk(agreed, factor);
  } else {
    update_in_memory(agreed, factor);
  }
  if (!c_.config.overlap) gatherer_.settle();
}

// DDP's rule: what nobody used keeps its bits, its state and its step count.
bool Engine::is_updated(const Visit& visit, const HeaderResult& agreed) const {
  return is_used(agreed.used, visit.parameter) && !c_.masked[visit.parameter];
}

void Engine::update_run(const Visit& visit, update::Run run, float factor) {
  run.factor = factor;
  run.step = step_counts_[visit.parameter];
  update::apply(c_.groups[c_.parameter(visit.parameter).group], run);
}

void Engine::update_in_memory(const HeaderResult& agreed, float factor) {
  const std::size_t tile =
      c_.config.tile_elements == 0 ? SIZE_MAX : (c_.config.tile_elements + 1023) / 1024 * 1024;
  for (int u = 0; u < static_cast<int>(c_.layout.units.size()); ++u) {
    bool touched = false;
    {
      const trace::Span span("update", c_.unit(u).name, "compute");
      for (const int f : c_.unit(u).flats) {
        if (!c_.layout.flats[f].trainable) continue;
        touched = true;
        for (const Visit& visit : visits_[static_cast<std::size_t>(f)]) {
          if (!is_updated(visit, agreed)) continue;
          for (std::size_t first = 0; first < visit.run.count;
               first += std::min(tile, visit.run.count - first)) {
            update_run(visit,
                       update::part(visit.run, first, std::min(tile, visit.run.count - first)),
                       factor);
          }
        }
      }
    }
    if (touched) gatherer_.publish(u);
  }
}

// Every rank walks its tiles in the same direction, and so finishes units in the same order.
void Engine::update_on_disk(const HeaderResult& agreed, float factor) {
  std::vector<std::int64_t> left(c_.layout.units.size(), 0);  // elements of each unit
  std::vector<char> touched(c_.layout.units.size(), 0);
  for (std::size_t f = 0; f < c_.layout.flats.size(); ++f) {
    const FlatInfo& flat = c_.layout.flats[f];
    if (!flat.trainable) continue;
    left[flat.unit] += c_.state->arrays(static_cast<int>(f)).owned_count;
    touched[flat.unit] = 1;
  }
  for (int u = 0; u < static_cast<int>(left.size()); ++u) {
    if (touched[u] && left[u] == 0) gatherer_.publish(u);
  }
  try {
    const trace::Span span("update", "tiles", "compute");
    c_.state->walk_tiles([&](const TileSegment& segment, std::byte* arrays) {
      const std::vector<Visit>& visits = visits_[static_cast<std::size_t>(segment.flat)];
      const std::int64_t end = segment.first + segment.count;
      auto visit = std::partition_point(visits.begin(), visits.end(), [&](const Visit& v) {
        return v.place.first + static_cast<std::int64_t>(v.run.count) <= segment.first;
      });
      for (; visit != visits.end() && visit->place.first < end; ++visit) {
        if (!is_updated(*visit, agreed)) continue;
        const std::int64_t first = std::max(segment.first, visit->place.first);
        const std::int64_t last =
            std::min(end, visit->place.first + static_cast<std::int64_t>(visit->run.count));
        update_run(*visit,
                   c_.state->attached(visit->place, visit->run,
                                      static_cast<std::size_t>(first - visit->place.first),
                                      static_cast<std::size_t>(last - first), segment, arrays),
                   factor);
      }
      const int unit = c_.layout.flats[segment.flat].unit;
      if ((left[unit] -= segment.count) == 0) gatherer_.publish(unit);
    });
  } catch (const IoError& error) {
    mark_broken(error.what());  // half of the state is a step ahead
    throw;
  }
}

void Engine::adopt_orders(const HeaderResult& agreed) {
  if (!agreed.forward_order.empty() || !agreed.backward_order.empty() ||
      !agreed.reduce_order.empty())
    log::debug("step {}: rank 0's order of units is everybody's from here", steps_);
  if (!agreed.forward_order.empty()) gatherer_.forward_order().reset(agreed.forward_order);
  if (!agreed.backward_order.empty()) gatherer_.backward_order().reset(agreed.backward_order);
  if (!agreed.reduce_order.empty()) reducer_.order().reset(agreed.reduce_order);
}

void Engine::back_off_or_grow(const HeaderResult& agreed, const Decision& decision) {
  const LossScale& options = c_.config.loss_scale;
  if (!options.dynamic) return;
  if (!decision.finite) {
    loss_scale_ = std::max(options.minimum, loss_scale_ * options.backoff);
    good_steps_ = 0;
    log::info("step {}: gradients overflowed, loss scale backs off to {}", steps_, loss_scale_);
  } else if (!decision.skipped && agreed.batches > 0 && ++good_steps_ >= options.growth_interval) {
    loss_scale_ = std::min(options.maximum, loss_scale_ * options.growth);
    good_steps_ = 0;
  }
}

Gradients Engine::reduce_gradients() {
  require_usable();
  require_released("reduce_gradients");
  if (reduced_)
    throw InvalidArgument(fmt::format("rank {}: reduce_gradients twice; call apply", c_.rank()));
  if (!micro_open_ || micro_index_ + 1 != micro_count_) {
    throw InvalidArgument(
        fmt::format("rank {}: reduce_gradients before the last micro-step", c_.rank()));
  }
  close_micro_step();
  gatherer_.settle();
  reducer_.wait();
  try {
    agreed_ = exchange(c_.reduce->control(), record(Call::reduce_gradients, std::nullopt), buffers_,
                       control_bytes_);
  } catch (const InvalidArgument&) {
    end_step();
    throw;
  }
  reduced_ = true;
  const Decision decision = decide(agreed_, std::nullopt);
  Gradients gradients;
  gradients.engine_ = this;
  gradients.norm_ = decision.norm;
  gradients.factor_ = decision.mean;
  gradients.batches_ = agreed_.batches;
  return gradients;
}

StepReport Engine::apply(Gradients& gradients, const ApplyOptions& options) {
  require_usable();
  validate_clip(options.clip_norm);
  if (!reduced_ || gradients.engine_ != this) {
    throw InvalidArgument(fmt::format(
        "rank {}: apply without reduce_gradients of this optimizer before it", c_.rank()));
  }
  if (changed_) reducer_.compute_norm_again();
  HeaderRecord& mine = record(Call::apply, options.clip_norm);
  mine.metrics = options.metrics;
  mine.skip = options.skip;
  mine.changed = changed_;
  HeaderResult agreed;
  try {
    agreed = exchange(c_.reduce->control(), mine, buffers_, control_bytes_);
  } catch (const InvalidArgument&) {
    end_step();
    throw;
  }
  gradients.engine_ = nullptr;
  // Orders were proposed, and agreed, by both headers alike.
  const Decision decision = decide(agreed, options.clip_norm);
  if (agreed.changed && !decision.skipped) reducer_.gather_again();
  StepReport report = finish(agreed, decision);
  throw_failed_save(agreed);
  return report;
}

std::vector<GradientSpan> Engine::gradient_spans(bool change) {
  if (!reduced_)
    throw InvalidArgument(fmt::format(
        "rank {}: gradients are looked at outside reduce_gradients and apply", c_.rank()));
  changed_ = changed_ || change;
  std::vector<GradientSpan> spans;
  for (std::size_t f = 0; f < c_.layout.flats.size(); ++f) {
    const FlatInfo& flat = c_.layout.flats[f];
    if (!flat.trainable) continue;
    const std::int64_t first = flat.shard * c_.rank();
    const DType type = c_.state->plan(static_cast<int>(f)).reduced_type;
    for (const Piece& piece : pieces(c_.layout, flat, first, first + flat.shard)) {
      std::byte* data = c_.state->arrays(static_cast<int>(f)).reduced +
                        (piece.flat_first - first) * static_cast<std::int64_t>(size_of(type));
      spans.push_back({.parameter = Parameter(this, piece.parameter),
                       .first_element = piece.first,
                       .count = piece.count,
                       .data = data,
                       .type = type});
    }
  }
  return spans;
}

StepReport Engine::joint_step(const ProcessGroup& parent,
                              std::span<ShardedOptimizer* const> optimizers,
                              const StepOptions& options) {
  validate_clip(options.clip_norm);
  const int rank = parent.rank();
  if (optimizers.empty())
    throw InvalidArgument(fmt::format("rank {}: joint step of no optimizers", rank));
  Engine& lead = optimizers.front()->engine();
  // Everything that one rank can see is checked before the first word to another.
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    Engine& engine = optimizers[i]->engine();
    engine.require_usable();
    engine.require_released("joint step");
    if (std::count(optimizers.begin(), optimizers.end(), optimizers[i]) > 1)
      throw InvalidArgument(
          fmt::format("rank {}: joint step: optimizer {} is given twice", rank, i));
    if (!engine.micro_open_ || engine.micro_index_ + 1 != engine.micro_count_ || engine.reduced_) {
      throw InvalidArgument(
          fmt::format("rank {}: joint step: an optimizer is not after its last micro-step", rank));
    }
    if (engine.weight_ != lead.weight_ || engine.batches_ != lead.batches_) {
      throw InvalidArgument(
          fmt::format("rank {}: joint step: an optimizer has seen weight {} in {} batches, the "
                      "first {} in {}; pass the "
                      "same weights to all",
                      rank, engine.weight_, engine.batches_, lead.weight_, lead.batches_));
    }
    if (engine.loss_scale_ != lead.loss_scale_) {
      throw InvalidArgument(fmt::format("rank {}: joint step: loss scales {} and {} differ", rank,
                                        engine.loss_scale_, lead.loss_scale_));
    }
  }
  HeaderRecord mine;
  mine.call = Call::joint_step;
  mine.step = lead.steps_;
  mine.clip_norm = options.clip_norm.value_or(-1.0);
  mine.weight = lead.weight_;
  mine.batches = lead.batches_;
  mine.metrics = options.metrics;
  mine.options = XXH3_64bits(&lead.loss_scale_, sizeof lead.loss_scale_);

  // First each optimizer's own header: sums and used parameters over the ranks that share it. What
  // one of them refuses, the parent's header tells the ranks that do not share it.
  std::vector<HeaderResult> agreed;
  for (ShardedOptimizer* optimizer : optimizers) {
    Engine& engine = optimizer->engine();
    engine.close_micro_step();
    engine.gatherer_.settle();
    engine.reducer_.wait();
    HeaderResult& own = agreed.emplace_back();
    try {
      own =
          exchange(engine.c_.reduce->control(), engine.record(Call::joint_step, options.clip_norm),
                   engine.buffers_, engine.control_bytes_);
    } catch (const InvalidArgument& error) {
      if (mine.refused.empty()) {
        mine.refused = fmt::format("joint step: an optimizer over {} of {} ranks: {}",
                                   engine.c_.world(), parent.size(), error.what());
      }
    }
    mine.stop = mine.stop || own.stop;
    if (engine.c_.rank() == 0) mine.squared_norm += own.squared_norm / engine.c_.config.replicas;
  }
  // Then the parent's: one norm, one weight, one decision.
  HeaderResult total;
  try {
    total = exchange(parent.communicator()->control(), mine, lead.buffers_, lead.control_bytes_);
  } catch (const InvalidArgument&) {
    for (ShardedOptimizer* optimizer : optimizers) optimizer->engine().end_step();
    throw;
  }
  const Decision decision = lead.decide(total, options.clip_norm);
  StepReport report;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    HeaderResult own = agreed[i];
    own.weight = total.weight;
    own.batches = total.batches;
    own.stop = total.stop;
    own.metrics = total.metrics;
    const StepReport r = optimizers[i]->engine().finish(own, decision);
    if (i == 0) report = r;
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i)
    optimizers[i]->engine().throw_failed_save(agreed[i]);
  return report;
}

}  // namespace ration::detail

namespace ration {

StepReport step(const ProcessGroup& parent, std::span<ShardedOptimizer* const> optimizers,
                const StepOptions& options) {
  return detail::Engine::joint_step(parent, optimizers, options);
}

}  // namespace ration
