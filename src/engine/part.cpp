#include "engine/part.hpp"

#include <algorithm>
#include <cstring>

#include "device/host/arithmetic.hpp"
#include "device/host/stream_copy.hpp"

namespace ration::detail {

using checkpoint::FlatEntry;
using checkpoint::KindEntry;
using checkpoint::Slice;
using Use = offload::TileStore::Use;

Engine::Part::Part(Engine& engine, std::string name) : engine_(engine) {
  const Layout& layout = engine.c_.layout;
  entry_.name = std::move(name);
  entry_.stage = engine.c_.config.stage;
  entry_.steps = engine.steps_;
  entry_.loss_scale = engine.loss_scale_;
  entry_.good_steps = engine.good_steps_;
  for (const Rule& rule : engine.c_.groups)
    entry_.groups.push_back({.rule = update::name_of(rule), .options = update::options(rule)});
  for (const UnitInfo& unit : layout.units) {
    checkpoint::UnitEntry& described = entry_.units.emplace_back();
    described.name = unit.name;
    for (const int f : unit.flats) described.flats.push_back(describe_flat(f));
  }
  for (const TiedName& tied : layout.tied) {
    entry_.units[static_cast<std::size_t>(tied.unit)].tied.push_back(
        {.name = tied.name, .parameter = layout.parameters[tied.parameter].name});
  }
  for (const checkpoint::UnitEntry& unit : entry_.units) {
    for (const FlatEntry& flat : unit.flats) flats_.push_back(&flat);
  }
  for (const std::vector<Visit>& visits : engine.visits_) {
    for (const Visit& visit : visits) pieces_.push_back(&visit);
  }
}

FlatEntry Engine::Part::describe_flat(int flat) const {
  const Layout& layout = engine_.c_.layout;
  const FlatInfo& info = layout.flats[flat];
  const FlatPlan& plan = engine_.c_.state->plan(flat);
  FlatEntry entry{.dtype = info.dtype, .trainable = info.trainable, .length = info.length};
  entry.kinds.push_back({.name = "parameter", .dtype = info.dtype});
  if (info.trainable) {
    if (plan.weight_kind != update::WeightKind::own)
      entry.kinds.push_back({.name = "master", .dtype = DType::f32});
    for (const std::string& state : plan.state_kinds)
      entry.kinds.push_back({.name = state, .dtype = engine_.c_.config.precision.moments});
  }
  for (const int p : info.parameters) {
    const ParameterInfo& parameter = layout.parameters[p];
    entry.parameters.push_back({.name = parameter.name,
                                .shape = parameter.shape,
                                .offset = parameter.offset,
                                .group = parameter.group,
                                .step_count = engine_.step_counts_[static_cast<std::size_t>(p)],
                                .masked = engine_.c_.masked[static_cast<std::size_t>(p)] != 0});
  }
  return entry;
}

const Rule& Engine::Part::rule_of(const Visit& visit) const {
  return engine_.c_.groups[engine_.c_.parameter(visit.parameter).group];
}

// At stage 0 every rank has everything; each saves what would be its shard.
std::vector<Slice> Engine::Part::slices() const {
  std::vector<Slice> slices;
  const Layout& layout = engine_.c_.layout;
  for (std::size_t f = 0; f < layout.flats.size(); ++f) {
    const FlatInfo& info = layout.flats[f];
    const std::int64_t start = std::min(info.shard * engine_.c_.rank(), info.length);
    const std::int64_t end = std::min(info.shard * (engine_.c_.rank() + 1), info.length);
    if (start == end) continue;
    for (std::size_t k = 0; k < flats_[f]->kinds.size(); ++k) {
      slices.push_back({.flat = static_cast<int>(f),
                        .kind = static_cast<int>(k),
                        .start = start,
                        .length = end - start});
    }
  }
  return slices;
}

void Engine::Part::read(int flat, int kind, std::int64_t first, std::int64_t count,
                        std::byte* to) const {
  const KindEntry& array =
      flats_[static_cast<std::size_t>(flat)]->kinds[static_cast<std::size_t>(kind)];
  const auto element = static_cast<std::int64_t>(size_of(array.dtype));
  std::int64_t filled = first;  // up to here `to` is written: zeros between parameters
  const auto zero_up_to = [&](std::int64_t place) {
    if (place > filled) {
      std::memset(to + (filled - first) * element, 0,
                  static_cast<std::size_t>((place - filled) * element));
    }
  };
  const std::vector<Visit>& visits = engine_.visits_[static_cast<std::size_t>(flat)];
  const auto begins = [&](const Visit& visit) {
    return engine_.c_.parameter(visit.parameter).offset +
           static_cast<std::int64_t>(visit.run.first_element);
  };
  auto visit = std::partition_point(visits.begin(), visits.end(), [&](const Visit& v) {
    return begins(v) + static_cast<std::int64_t>(v.run.count) <= first;
  });
  for (; visit != visits.end() && begins(*visit) < first + count; ++visit) {
    const std::int64_t begin = std::max(first, begins(*visit));
    const std::int64_t end =
        std::min(first + count, begins(*visit) + static_cast<std::int64_t>(visit->run.count));
    zero_up_to(begin);
    filled = end;
    const auto in_run = static_cast<std::size_t>(begin - begins(*visit));
    const auto n = static_cast<std::size_t>(end - begin);
    std::byte* place = to + (begin - first) * element;
    const auto bytes = static_cast<std::size_t>((end - begin) * element);
    if (array.name == "parameter") {
      stream_copy(place, update::part(visit->run, in_run, n).weight, bytes);
    } else if (array.name == "master") {
      engine_.c_.state->with_state(visit->place, visit->run, in_run, n, Use::read,
                                   [&](const update::Run& run, std::size_t at) {
                                     update::load_weights(
                                         run, reinterpret_cast<float*>(place) + (at - in_run));
                                   });
    } else {
      const auto names = update::state_names(rule_of(*visit));
      const auto state = std::find(names.begin(), names.end(), array.name);
      if (state == names.end()) {
        std::memset(place, 0, bytes);
      } else {
        const auto k = static_cast<std::size_t>(state - names.begin());
        const std::size_t size = size_of(array.dtype);
        engine_.c_.state->with_state(visit->place, visit->run, in_run, n, Use::read,
                                     [&](const update::Run& run, std::size_t at) {
                                       stream_copy(place + (at - in_run) * size, run.state[k],
                                                   run.count * size);
                                     });
      }
    }
  }
  zero_up_to(first + count);
}

std::vector<checkpoint::WantedPiece> Engine::Part::wanted() const {
  std::vector<checkpoint::WantedPiece> result;
  for (const Visit* visit : pieces_) {
    const ParameterInfo& parameter = engine_.c_.parameter(visit->parameter);
    checkpoint::WantedPiece& piece = result.emplace_back();
    piece.parameter = parameter.name;
    piece.first = static_cast<std::int64_t>(visit->run.first_element);
    piece.count = static_cast<std::int64_t>(visit->run.count);
    piece.trainable = parameter.trainable;
    if (parameter.trainable) piece.states = update::state_names(rule_of(*visit));
  }
  return result;
}

void Engine::Part::write(std::size_t piece, int state, std::int64_t first, std::int64_t count,
                         DType type, const std::byte* from) {
  constexpr std::int64_t kScratch = 16384;  // fp32, beside what it comes from in the L2 cache
  alignas(64) float scratch[kScratch];
  const Visit& visit = *pieces_[piece];
  const bool trainable = engine_.c_.parameter(visit.parameter).trainable;
  const auto element = static_cast<std::int64_t>(size_of(type));
  for (std::int64_t done = 0; done < count; done += std::min(kScratch, count - done)) {
    const auto n = static_cast<std::size_t>(std::min(kScratch, count - done));
    const std::byte* source = from + done * element;
    const DType target_type = state >= 0 ? visit.run.state_type : visit.run.weight_type;
    const bool same = (state >= 0 || !trainable) && type == target_type;
    const float* values = reinterpret_cast<const float*>(source);
    const bool aligned = reinterpret_cast<std::uintptr_t>(source) % alignof(float) == 0;
    if (!same && type != DType::f32) {
      arithmetic().cast(source, type, scratch, DType::f32, n);
      values = scratch;
    } else if (!same && !aligned) {
      std::memcpy(scratch, source, n * sizeof(float));
      values = scratch;
    }
    const auto begin = static_cast<std::size_t>(first + done);
    const auto put = [&](const update::Run& run, std::size_t at) {
      const std::size_t skipped = at - begin;
      void* target = state >= 0 ? run.state[static_cast<std::size_t>(state)] : run.weight;
      if (same) {
        std::memcpy(target, source + skipped * size_of(type), run.count * size_of(type));
      } else if (state < 0 && trainable) {
        update::store_weights(run, values + skipped);
      } else {
        arithmetic().cast(values + skipped, DType::f32, target, target_type, run.count);
      }
    };
    if (trainable) {
      engine_.c_.state->with_state(visit.place, visit.run, begin, n, Use::update, put);
    } else {
      put(update::part(visit.run, begin, n), begin);
    }
  }
}

}  // namespace ration::detail
