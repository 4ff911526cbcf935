#include "engine/reducer.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "core/trace.hpp"
#include "device/operations.hpp"

namespace ration {
namespace {

std::int64_t bytes_of(std::int64_t elements, DType type) {
  return elements * static_cast<std::int64_t>(size_of(type));
}

}  // namespace

Reducer::Reducer(Context& context) : c_(context) {}

void Reducer::prepare() {
  const Layout& layout = c_.layout;
  several_ = c_.config.micro_steps > 1;
  units_.assign(layout.units.size(), {});
  std::vector<int> order;
  for (int u = 0; u < static_cast<int>(layout.units.size()); ++u) {
    for (const int f : layout.units[u].flats) {
      if (!layout.flats[f].trainable) continue;
      units_[u].has_trainable = true;
      units_[u].needs_bucket = units_[u].needs_bucket || c_.state->plan(f).uses_bucket;
    }
    if (units_[u].has_trainable) order.push_back(u);
  }
  std::reverse(order.begin(), order.end());
  order_.reset(order);
  buckets_.clear();
  for (const int entry : c_.state->plan().buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.memory = c_.state->entry(entry);
    bucket.done = c_.reduce_stream->make_event();
  }
  const std::size_t parameters = layout.parameters.size();
  asked_.assign(parameters, 0);
  ready_.assign(parameters, 0);
  used_.assign(parameters, 0);
  norms_.assign(layout.flats.size(), 0.0);
  filled_ = c_.compute->make_event();
}

void Reducer::begin_micro_step(int index, int count) {
  index_ = index;
  count_ = count;
  order_.begin_pass();
  std::fill(asked_.begin(), asked_.end(), 0);
  std::fill(ready_.begin(), ready_.end(), 0);
  for (UnitState& unit : units_) unit.progress = Progress::idle;
}

std::byte* Reducer::gradient_flat(int f) const {
  const FlatArrays& arrays = c_.state->arrays(f);
  if (arrays.gradient) return arrays.gradient;
  const FlatInfo& flat = c_.layout.flats[f];
  std::byte* base = buckets_[units_[flat.unit].bucket].memory;
  for (const int other : c_.unit(flat.unit).flats) {
    if (other == f) break;
    const FlatPlan& plan = c_.state->plan(other);
    if (plan.uses_bucket)
      base += bytes_of(c_.layout.padded(c_.layout.flats[other]), plan.gradient_type);
  }
  return base;
}

void* Reducer::gradient(int p, bool overwrite) {
  const ParameterInfo& parameter = c_.parameter(p);
  UnitState& unit = units_[parameter.unit];
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(
        fmt::format("rank {}: parameter \"{}\": {}", c_.rank(), parameter.name, why));
  };
  if (!parameter.trainable || c_.masked[p]) refuse("gradient asked for, but it is frozen");
  if (ready_[p]) refuse("gradient asked for after it was said to be ready");
  if (c_.trainer_gradient[p])
    refuse("its gradient is the trainer's own; say gradient_ready when it is written");
  if (unit.needs_bucket && unit.bucket < 0) acquire_bucket(parameter.unit);
  const FlatPlan& plan = c_.state->plan(parameter.flat);
  std::byte* place = gradient_flat(parameter.flat) + bytes_of(parameter.offset, plan.gradient_type);
  const bool holds_sum = plan.accumulates_in_place && used_[p];
  if (holds_sum && overwrite && !asked_[p]) {
    refuse(
        fmt::format("overwrite asked for in micro-step {}, but its memory holds the sum of the "
                    "earlier ones; add instead",
                    index_));
  }
  if (!asked_[p] && !overwrite && !holds_sum) {
    device::zero(*c_.compute, place,
                 static_cast<std::size_t>(bytes_of(parameter.count, plan.gradient_type)));
  }
  asked_[p] = 1;
  used_[p] = 1;
  unit.progress = Progress::filling;
  return place;
}

void Reducer::acquire_bucket(int u) {
  // A free one, or the one whose reduce was started first.
  Bucket* chosen = nullptr;
  for (Bucket& bucket : buckets_) {
    if (bucket.unit < 0) {
      chosen = &bucket;
      break;
    }
    if (bucket.reducing && (!chosen || bucket.operations.front() < chosen->operations.front()))
      chosen = &bucket;
  }
  if (!chosen) refuse_bucket(u);
  if (chosen->unit >= 0) {
    const trace::Span span("wait for bucket", c_.unit(u).name, "compute");
    c_.compute->wait(*chosen->done);
    for (const Sequence operation : chosen->operations) c_.reduce->release(*c_.compute, operation);
    free_bucket(*chosen);
  }
  chosen->unit = u;
  units_[u].bucket = static_cast<int>(chosen - buckets_.data());
}

void Reducer::free_bucket(Bucket& bucket) {
  if (bucket.unit >= 0 && !bucket.reducing) units_[bucket.unit].bucket = -1;
  bucket.unit = -1;
  bucket.reducing = false;
  bucket.operations.clear();
}

void Reducer::refuse_bucket(int u) {
  std::vector<std::string> holders;
  for (const Bucket& bucket : buckets_) {
    const bool waits = units_[bucket.unit].progress == Progress::ready;
    holders.push_back(fmt::format("\"{}\"{}", c_.unit(bucket.unit).name,
                                  waits ? " (ready, waits its turn)" : ""));
  }
  const auto next = order_.next();
  const std::string text = fmt::format(
      "rank {}: unit \"{}\": every gradient bucket is held (by {}), the next to be reduced is "
      "\"{}\"; say gradients_ready for that one, if only to leave it out, register units in the "
      "order "
      "of the forward, or raise Config::buckets (now {})",
      c_.rank(), c_.unit(u).name, fmt::join(holders, ", "), next ? c_.unit(*next).name : "none",
      buckets_.size());
  c_.parent->abort(text);
  throw InvalidArgument(text);
}

void Reducer::unit_ready(int u) {
  const UnitState& unit = units_[u];
  if (!unit.has_trainable) return;
  if (unit.progress >= Progress::ready) {
    throw InvalidArgument(
        fmt::format("rank {}: unit \"{}\": gradients_ready said twice in one micro-step", c_.rank(),
                    c_.unit(u).name));
  }
  for (const int p : c_.unit(u).parameters) {
    if (!c_.parameter(p).trainable || c_.masked[p]) continue;
    if (c_.trainer_gradient[p]) asked_[p] = used_[p] = 1;
    ready_[p] = 1;
  }
  make_ready(u);
}

void Reducer::parameter_ready(int p) {
  const ParameterInfo& parameter = c_.parameter(p);
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(
        fmt::format("rank {}: parameter \"{}\": {}", c_.rank(), parameter.name, why));
  };
  if (!parameter.trainable || c_.masked[p]) refuse("gradient_ready, but it is frozen");
  if (ready_[p]) refuse("gradient_ready said twice in one micro-step");
  if (c_.trainer_gradient[p]) asked_[p] = used_[p] = 1;
  ready_[p] = 1;
  units_[parameter.unit].progress = Progress::filling;
  const auto& all = c_.unit(parameter.unit).parameters;
  const bool complete = std::all_of(all.begin(), all.end(), [&](int other) {
    return ready_[other] || !c_.parameter(other).trainable || c_.masked[other];
  });
  if (complete) make_ready(parameter.unit);
}

void Reducer::make_ready(int u) {
  UnitState& unit = units_[u];
  unit.progress = Progress::ready;
  if (local()) {
    fill_rest(u);
    accumulate(u);
    if (!last()) {
      unit.progress = Progress::started;
      return;
    }
  }
  order_.record(u);
  advance();
}

void Reducer::advance() {
  while (const auto next = order_.next()) {
    if (units_[*next].progress != Progress::ready) {
      // When all buckets wait for a unit that has none, no later call can help: better said now
      // than after a wait for peers that wait for this rank.
      const bool stuck = units_[*next].needs_bucket &&
                         std::all_of(buckets_.begin(), buckets_.end(), [&](const Bucket& bucket) {
                           return bucket.unit >= 0 && !bucket.reducing &&
                                  units_[bucket.unit].progress == Progress::ready;
                         });
      if (stuck) refuse_bucket(*next);
      return;
    }
    order_.advance();
    start(*next);
  }
}

// Parameters nobody asked for, and the gaps between parameters: a bucket still holds what its last
// unit left there.
void Reducer::fill_rest(int u) {
  UnitState& unit = units_[u];
  if (unit.needs_bucket && unit.bucket < 0) acquire_bucket(u);
  for (const int f : c_.unit(u).flats) {
    const FlatInfo& flat = c_.layout.flats[f];
    if (!flat.trainable) continue;
    const FlatPlan& plan = c_.state->plan(f);
    std::byte* base = gradient_flat(f);
    const auto zero = [&](std::int64_t first, std::int64_t end) {
      if (end > first) {
        device::zero(*c_.compute, base + bytes_of(first, plan.gradient_type),
                     static_cast<std::size_t>(bytes_of(end - first, plan.gradient_type)));
      }
    };
    std::int64_t end = 0;
    for (const int p : flat.parameters) {
      const ParameterInfo& parameter = c_.parameter(p);
      zero(end, parameter.offset);
      end = parameter.offset + parameter.count;
      if (c_.trainer_gradient[p] && asked_[p]) {
        device::copy(*c_.compute, static_cast<const std::byte*>(c_.trainer_gradient[p]),
                     base + bytes_of(parameter.offset, plan.gradient_type),
                     static_cast<std::size_t>(bytes_of(parameter.count, plan.gradient_type)));
      } else if (plan.accumulates_in_place ? !used_[p] : !asked_[p]) {
        zero(parameter.offset, end);
      }
    }
    zero(end, c_.layout.padded(flat));
  }
}

// Adds the micro-step's gradient to the local fp32 accumulator and gives the bucket back.
void Reducer::accumulate(int u) {
  UnitState& unit = units_[u];
  for (const int f : c_.unit(u).flats) {
    const FlatInfo& flat = c_.layout.flats[f];
    const FlatPlan& plan = c_.state->plan(f);
    if (!flat.trainable || plan.accumulates_in_place) continue;
    const auto count = static_cast<std::size_t>(c_.layout.padded(flat));
    std::byte* accumulator = c_.state->arrays(f).accumulator;
    if (unit.accumulated) {
      device::add(*c_.compute, gradient_flat(f), plan.gradient_type, accumulator, count);
    } else {
      device::cast(*c_.compute, gradient_flat(f), plan.gradient_type, accumulator, DType::f32,
                   count);
    }
  }
  unit.accumulated = true;
  if (unit.bucket >= 0) free_bucket(buckets_[unit.bucket]);
}

void Reducer::start(int u) {
  UnitState& unit = units_[u];
  if (!local()) fill_rest(u);
  unit.progress = Progress::started;
  c_.compute->record(*filled_);
  c_.reduce_stream->wait(*filled_);
  Bucket* bucket = unit.bucket >= 0 ? &buckets_[unit.bucket] : nullptr;
  for (const int f : c_.unit(u).flats) {
    if (c_.layout.flats[f].trainable) reduce_flat(f, unit, bucket);
  }
  unit.accumulated = true;
  if (bucket) {
    // Peers may read it for long: what the unit writes in the next micro-step goes to another, or
    // waits.
    bucket->reducing = true;
    unit.bucket = -1;
    c_.reduce_stream->record(*bucket->done);
  }
  if (!c_.config.overlap) c_.reduce_stream->synchronize();
}

void Reducer::reduce_flat(int f, UnitState& unit, Bucket* bucket) {
  const FlatInfo& flat = c_.layout.flats[f];
  const FlatPlan& plan = c_.state->plan(f);
  const FlatArrays& arrays = c_.state->arrays(f);
  const char* name = c_.unit(flat.unit).name.c_str();
  const bool from_accumulator = arrays.accumulator != nullptr;
  const Sequence sequence = c_.reduce->submit(
      *c_.reduce_stream, {.kind = OperationKind::reduce_scatter,
                          .count = static_cast<std::size_t>(flat.shard),
                          .type = plan.reduce_type,
                          .send = from_accumulator ? arrays.accumulator : gradient_flat(f),
                          .send_type = from_accumulator ? DType::f32 : plan.gradient_type,
                          .recv = arrays.reduced,
                          .recv_type = plan.reduced_type,
                          .add = several_ && !local() && unit.accumulated,
                          .tag = name});
  if (bucket && plan.uses_bucket) bucket->operations.push_back(sequence);
  if (!last()) return;
  device::squared_norm(*c_.reduce_stream, arrays.reduced, plan.reduced_type,
                       static_cast<std::size_t>(flat.shard), &norms_[static_cast<std::size_t>(f)]);
  if (arrays.reduced_whole) gather_reduced(f);
}

Sequence Reducer::gather_reduced(int f) {
  const FlatInfo& flat = c_.layout.flats[f];
  const FlatArrays& arrays = c_.state->arrays(f);
  return c_.reduce->submit(*c_.reduce_stream, {.kind = OperationKind::all_gather,
                                               .count = static_cast<std::size_t>(flat.shard),
                                               .type = c_.state->plan(f).reduced_type,
                                               .send = arrays.reduced,
                                               .recv = arrays.reduced_whole,
                                               .tag = c_.unit(flat.unit).name.c_str()});
}

void Reducer::finish_micro_step() {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    if (units_[u].progress != Progress::filling) continue;
    for (const int p : c_.unit(u).parameters) {
      if (!asked_[p] || ready_[p]) continue;
      throw InvalidArgument(fmt::format(
          "rank {}: parameter \"{}\": its gradient was asked for but never said to be ready; "
          "call gradients_ready after the last write",
          c_.rank(), c_.parameter(p).name));
    }
  }
  if (local() && !last()) {
    // Units some of whose parameters became ready: the rest counts as zero.
    for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
      if (units_[u].progress == Progress::filling) make_ready(u);
    }
    return;
  }
  while (const auto next = order_.next()) {
    UnitState& unit = units_[*next];
    if (local() && unit.progress < Progress::ready) {
      const bool filling = unit.progress == Progress::filling;
      // Nothing in this micro-step, but perhaps in earlier ones.
      if (filling || !unit.accumulated) {
        fill_rest(*next);
        accumulate(*next);
      } else if (!unit.needs_bucket) {
        fill_rest(*next);
      }
    }
    order_.advance();
    start(*next);
  }
}

bool Reducer::any_ready() const {
  return std::any_of(ready_.begin(), ready_.end(), [](char ready) { return ready != 0; });
}

void Reducer::wait() {
  const trace::Span span("wait for reduces", "", "compute");
  c_.reduce_stream->synchronize();
}

double Reducer::squared_norm() const {
  double sum = 0;
  for (const UnitInfo& unit : c_.layout.units) {
    for (const int f : unit.flats) {
      if (c_.layout.flats[f].trainable) sum += norms_[static_cast<std::size_t>(f)];
    }
  }
  return sum;
}

void Reducer::compute_norm_again() {
  for (int f = 0; f < static_cast<int>(c_.layout.flats.size()); ++f) {
    const FlatInfo& flat = c_.layout.flats[f];
    if (!flat.trainable) continue;
    device::squared_norm(*c_.compute, c_.state->arrays(f).reduced, c_.state->plan(f).reduced_type,
                         static_cast<std::size_t>(flat.shard),
                         &norms_[static_cast<std::size_t>(f)]);
  }
}

void Reducer::gather_again() {
  std::vector<Sequence> operations;
  for (int f = 0; f < static_cast<int>(c_.layout.flats.size()); ++f) {
    if (!c_.layout.flats[f].trainable || !c_.state->arrays(f).reduced_whole) continue;
    operations.push_back(gather_reduced(f));
  }
  c_.reduce_stream->synchronize();
  for (const Sequence operation : operations) c_.reduce->release(*c_.compute, operation);
}

void Reducer::clear() {
  std::fill(used_.begin(), used_.end(), 0);
  for (UnitState& unit : units_) {
    unit.accumulated = false;
    unit.progress = Progress::idle;
  }
  for (Bucket& bucket : buckets_) {
    // Every rank has sent its header since: nobody reads a bucket any more.
    if (bucket.unit >= 0) free_bucket(bucket);
  }
}

}  // namespace ration
