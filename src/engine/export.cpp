// Looking at the whole from outside a step: for evaluation, export, tests and digests.

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "device/host/arithmetic.hpp"
#include "engine/engine.hpp"

namespace ration {

struct Whole::Memory {
  std::vector<const std::byte*> parameters;  // by index
  std::vector<std::unique_ptr<::ration::Memory>> flats;
};

}  // namespace ration

namespace ration::detail {

Whole Engine::gather_all() {
  require_usable();
  require_between_steps("gather_all");
  gatherer_.begin_pass(Pass::none);  // joins what an evaluation left
  gatherer_.settle();
  Whole whole;
  whole.engine_ = this;
  whole.memory_ = std::make_shared<Whole::Memory>();
  whole.memory_->parameters.resize(c_.layout.parameters.size());
  for (std::size_t f = 0; f < c_.layout.flats.size(); ++f) {
    const FlatInfo& flat = c_.layout.flats[f];
    const bool gathered = c_.state->plan(static_cast<int>(f)).gathered_in_slot;
    std::byte* memory = nullptr;
    if (gathered) {
      auto& block = whole.memory_->flats.emplace_back(
          allocate_host(static_cast<std::size_t>(c_.layout.padded(flat)) * size_of(flat.dtype)));
      memory = block->data();
      gatherer_.gather_flat(static_cast<int>(f), memory);
    }
    for (const int p : flat.parameters) {
      whole.memory_->parameters[static_cast<std::size_t>(p)] =
          gathered
              ? memory + c_.parameter(p).offset * static_cast<std::int64_t>(size_of(flat.dtype))
              : gatherer_.address(p);
    }
  }
  return whole;
}

const void* Engine::whole_address(const Whole& whole, const Parameter& parameter) {
  if (!whole.engine_) throw InvalidArgument("the whole is empty; take it from gather_all");
  if (parameter.engine_ != whole.engine_)
    throw InvalidArgument("the parameter belongs to another optimizer");
  const auto index = static_cast<std::size_t>(parameter.index_);
  if (index >= whole.memory_->parameters.size()) {
    throw InvalidArgument(fmt::format(
        "parameter \"{}\" was added after gather_all or before relayout", parameter.name()));
  }
  return whole.memory_->parameters[index];
}

std::uint64_t Engine::digest() {
  require_usable();
  require_between_steps("digest");
  gatherer_.begin_pass(Pass::none);  // joins what an evaluation left
  gatherer_.settle();
  // Unit by unit, which is registration order, so that no rank holds the whole model for it.
  std::int64_t most = 0;
  for (int u = 0; u < static_cast<int>(c_.layout.units.size()); ++u) {
    if (gatherer_.gathered_in_slot(u)) most = std::max(most, whole_bytes(c_.layout, u));
  }
  const std::unique_ptr<Memory> buffer = allocate_host(static_cast<std::size_t>(most));
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (int u = 0; u < static_cast<int>(c_.layout.units.size()); ++u) {
    std::map<int, const std::byte*> flats;  // those gathered for this
    std::byte* memory = buffer->data();
    for (const int f : c_.unit(u).flats) {
      if (!gatherer_.gathered_in_slot(u)) break;
      gatherer_.gather_flat(f, memory);
      flats[f] = memory;
      memory += c_.layout.padded(c_.layout.flats[f]) *
                static_cast<std::int64_t>(size_of(c_.layout.flats[f].dtype));
    }
    for (const int p : c_.unit(u).parameters) {
      const ParameterInfo& parameter = c_.parameter(p);
      const auto element = static_cast<std::int64_t>(size_of(parameter.dtype));
      const auto flat = flats.find(parameter.flat);
      const std::byte* data =
          flat == flats.end() ? gatherer_.address(p) : flat->second + parameter.offset * element;
      XXH3_64bits_update(state.get(), data, static_cast<std::size_t>(parameter.count * element));
    }
  }
  return XXH3_64bits_digest(state.get());
}

std::vector<float> Engine::whole_values(const Layout& layout, const State& state,
                                        const std::vector<std::vector<Visit>>& visits,
                                        int flat_index, std::string_view kind, const char* tag) {
  const FlatInfo& flat = layout.flats[flat_index];
  const FlatArrays& arrays = state.arrays(flat_index);
  std::vector<float> values(static_cast<std::size_t>(layout.padded(flat)));
  // The own part first, at its place in the whole.
  for (const Visit& visit : visits[static_cast<std::size_t>(flat_index)]) {
    const ParameterInfo& parameter = layout.parameters[visit.parameter];
    float* to =
        values.data() + parameter.offset + static_cast<std::int64_t>(visit.run.first_element);
    if (kind == "parameter" || !flat.trainable) {
      arithmetic().cast(visit.run.weight, visit.run.weight_type, to, DType::f32, visit.run.count);
    } else if (kind == "master") {
      state.with_state(
          visit.place, visit.run, offload::TileStore::Use::read,
          [&](const update::Run& run, std::size_t at) { update::load_weights(run, to + at); });
    } else {
      const auto names = update::state_names(c_.groups[parameter.group]);
      const auto name = std::find(names.begin(), names.end(), kind);
      if (name == names.end()) continue;
      const auto index = static_cast<std::size_t>(name - names.begin());
      state.with_state(visit.place, visit.run, offload::TileStore::Use::read,
                       [&](const update::Run& run, std::size_t at) {
                         arithmetic().cast(run.state[index], run.state_type, to + at, DType::f32,
                                           run.count);
                       });
    }
  }
  if (arrays.owned_count == layout.padded(flat)) return values;
  const Sequence sequence =
      c_.gather->submit(*c_.gather_stream, {.kind = OperationKind::all_gather,
                                            .count = static_cast<std::size_t>(flat.shard),
                                            .type = DType::f32,
                                            .send = values.data() + arrays.owned_first,
                                            .recv = values.data(),
                                            .tag = tag});
  c_.gather->release(*c_.gather_stream, sequence);
  c_.gather_stream->synchronize();
  return values;
}

std::vector<float> Engine::read(const Parameter& parameter, std::string_view kind) {
  require_usable();
  require_between_steps("read");
  const int p = own(parameter);
  require_laid_out(registered_.parameters[p].unit);
  const ParameterInfo& info = c_.parameter(p);
  if (kind != "parameter" && kind != "master") {
    const auto names = update::state_names(c_.groups[info.group]);
    if (!c_.layout.flats[info.flat].trainable ||
        std::find(names.begin(), names.end(), kind) == names.end())
      return {};
  }
  gatherer_.begin_pass(Pass::none);  // joins what an evaluation left
  gatherer_.settle();
  const std::vector<float> values =
      whole_values(c_.layout, *c_.state, visits_, info.flat, kind, info.name.c_str());
  return {values.begin() + info.offset, values.begin() + info.offset + info.count};
}

std::int64_t Engine::step_count(const Parameter& parameter) const {
  return step_counts_[own(parameter)];
}

MemoryReport Engine::memory() const {
  MemoryReport report;
  const StatePlan plan = this->plan();
  report.disk = plan.tiles.disk_bytes;
  for (const InventoryEntry& entry : plan.inventory)
    report.planned[static_cast<std::size_t>(entry.kind)] += entry.bytes;
  if (c_.state) {
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
      report.allocated[kind] = c_.state->allocated(static_cast<MemoryKind>(kind));
  }
  return report;
}

TrafficReport Engine::traffic() const {
  TrafficReport report{.sent_bytes = former_bytes_, .control_bytes = control_bytes_};
  if (c_.gather) report.sent_bytes += c_.gather->sent_bytes() + c_.reduce->sent_bytes();
  return report;
}

}  // namespace ration::detail
