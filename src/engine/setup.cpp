// From registration to memory: ranks agree on layout and options, everything is allocated,
// parameters get their values.

#include <algorithm>
#include <cstring>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "checkpoint/agreement.hpp"
#include "core/log.hpp"
#include "core/record.hpp"
#include "device/host/arithmetic.hpp"
#include "device/operations.hpp"
#include "engine/background_save.hpp"
#include "engine/engine.hpp"

namespace ration::detail {
namespace {

using Use = offload::TileStore::Use;

constexpr std::int64_t kFillElements = 64 * 1024;

std::string text_of(std::optional<DType> type) {
  return type ? std::string(name_of(*type)) : "default";
}

void validate(const Config& c) {
  const auto refuse = [](std::string_view what, const auto& value, std::string_view expected) {
    throw InvalidArgument(fmt::format("Config::{} is {}, must be {}", what, value, expected));
  };
  if (c.stage < 0 || c.stage > 3) refuse("stage", c.stage, "0, 1, 2 or 3");
  if (c.micro_steps < 1) refuse("micro_steps", c.micro_steps, "at least 1");
  if (c.prefetch < 0) refuse("prefetch", c.prefetch, "at least 0");
  if (c.buckets < 1) refuse("buckets", c.buckets, "at least 1");
  if (c.replicas < 1) refuse("replicas", c.replicas, "at least 1");
  const Precision& p = c.precision;
  if (!is_parameter_type(p.parameter))
    refuse("precision.parameter", name_of(p.parameter), "f32, bf16 or f16");
  if (p.gradient && !is_parameter_type(*p.gradient))
    refuse("precision.gradient", name_of(*p.gradient), "f32, bf16 or f16");
  if (p.reduce && !is_parameter_type(*p.reduce))
    refuse("precision.reduce", name_of(*p.reduce), "f32, bf16 or f16");
  if (p.moments != DType::f32 && p.moments != DType::bf16)
    refuse("precision.moments", name_of(p.moments), "f32 or bf16");
  if (p.master == Master::split && p.parameter != DType::bf16) {
    refuse("precision.master", "split",
           fmt::format("fp32 for {} parameters (a split master is a bf16 weight and its residue)",
                       name_of(p.parameter)));
  }
  if (c.offload.optimizer_state == Tier::disk && c.offload.directories.empty())
    refuse("offload.directories", "empty", "one folder at least for state on disk");
  const LossScale& s = c.loss_scale;
  const auto finite = [&](std::string_view what, double value, double least, double most) {
    if (!(value >= least && value <= most))
      refuse(what, value, fmt::format("from {} to {}", least, most));
  };
  constexpr double kTiny = 1e-30;
  constexpr double kHuge = 1e30;
  finite("loss_scale.initial", s.initial, kTiny, kHuge);
  finite("loss_scale.minimum", s.minimum, kTiny, kHuge);
  finite("loss_scale.maximum", s.maximum, s.minimum, kHuge);
  finite("loss_scale.backoff", s.backoff, kTiny, 1.0);
  finite("loss_scale.growth", s.growth, 1.0, kHuge);
  if (s.growth_interval < 1) refuse("loss_scale.growth_interval", s.growth_interval, "at least 1");
}

// Everything in Config, in words: compared across ranks by hash, shown when it differs.
std::string describe(const Config& c, const std::vector<Rule>& groups) {
  const Precision& p = c.precision;
  const LossScale& s = c.loss_scale;
  std::string text = fmt::format(
      "stage {}; parameter {}; gradient {}; reduce {}; master {}; moments {}; micro_steps {}; "
      "accumulation {}; loss_scale {}{}; prefetch {}; buckets {}; replicas {}; "
      "asynchronous_save {}; offload.optimizer_state {}",
      c.stage, name_of(p.parameter), text_of(p.gradient), text_of(p.reduce),
      p.master == Master::split ? "split" : "fp32", name_of(p.moments), c.micro_steps,
      accumulation_of(c) == Accumulation::local ? "local" : "sharded", s.initial,
      s.dynamic ? fmt::format(" dynamic (growth {}, backoff {}, interval {}, {} to {})", s.growth,
                              s.backoff, s.growth_interval, s.minimum, s.maximum)
                : std::string(),
      c.prefetch, c.buckets, c.replicas, c.asynchronous_save,
      c.offload.optimizer_state == Tier::disk ? "disk" : "memory");
  for (const Rule& rule : groups) {
    text += fmt::format("; group {} with state [{}]", update::name_of(rule),
                        fmt::join(update::state_names(rule), ", "));
  }
  return text;
}

// The first field in which two descriptions differ, with both values.
std::string difference(int rank, std::string_view here, std::string_view rank0) {
  const auto take = [](std::string_view& text) {
    const std::size_t end = text.find("; ");
    const std::string_view field = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
    return field.empty() ? std::string_view("nothing there") : field;
  };
  for (;;) {
    const std::string_view a = take(here);
    const std::string_view b = take(rank0);
    if (a == b) continue;
    return fmt::format(
        "rank {}: Config or groups differ: {}, rank 0 has {}; pass the same to all ranks", rank, a,
        b);
  }
}

std::uint64_t hash_of(const void* data, std::size_t size) {
  return XXH3_64bits(data, size);
}

}  // namespace

Engine::Engine(const ProcessGroup& group, const Config& config,
               std::function<bool()> stop_requested)
    : stop_requested_(std::move(stop_requested)), loss_scale_(config.loss_scale.initial) {
  if (!group.communicator())
    throw InvalidArgument("the process group is empty; take it from launch or split");
  validate(config);
  c_.config = config;
  c_.parent = group.communicator();
  c_.compute = device::make_host_compute_stream();
}

// An optimizer may end with work in flight, when an exception ends it: the streams go first,
// because their tasks read names and write norms.
Engine::~Engine() {
  if (background_) background_->join();  // it reads from here
  // Ended by an exception, work that waits for peers would wait for long: they learn of it only
  // when the exception has come to whoever tells them.
  if (std::uncaught_exceptions() > exceptions_ && c_.gather_stream) {
    c_.gather_stream->abandon();
    c_.reduce_stream->abandon();
  }
  c_.gather_stream.reset();
  c_.reduce_stream.reset();
}

void Engine::agree() {
  const Layout& layout = registered_;
  const Bytes described = ration::describe(layout);
  const std::string options = describe(c_.config, c_.groups);
  struct Hashes {
    std::uint64_t layout, options;
  } hashes{hash_of(described.data(), described.size()), hash_of(options.data(), options.size())};
  Bytes record(sizeof hashes);
  std::memcpy(record.data(), &hashes, sizeof hashes);

  // First the hashes; only when they differ does every rank send its description, to be put into
  // words once.
  Bytes result;
  c_.parent->control().fold(
      "layout", record,
      [](std::span<const Bytes> records, Bytes& out) {
        const bool same = std::all_of(records.begin(), records.end(),
                                      [&](const Bytes& r) { return r == records[0]; });
        out.assign(1, std::byte{same});
      },
      result, "comparison of layouts");
  if (result.at(0) == std::byte{1}) return;

  Bytes full;
  RecordWriter writer(full);
  writer.put_text(options);
  writer.put_list(described);
  c_.parent->control().fold(
      "layout", full,
      [](std::span<const Bytes> records, Bytes& out) {
        std::string text = "layouts differ";
        RecordReader first(records[0]);
        const std::string options0 = first.get_text();
        Bytes layout0;
        first.get_list(layout0);
        for (std::size_t rank = 1; rank < records.size(); ++rank) {
          RecordReader reader(records[rank]);
          const std::string options_here = reader.get_text();
          Bytes layout_here;
          reader.get_list(layout_here);
          if (options_here != options0) {
            text = difference(static_cast<int>(rank), options_here, options0);
            break;
          }
          if (layout_here != layout0) {
            text = explain_difference(static_cast<int>(rank), layout_here, layout0);
            break;
          }
        }
        RecordWriter(out).put_text(text);
      },
      result, "comparison of layouts");
  throw InvalidArgument(RecordReader(result).get_text());
}

void Engine::set_up() {
  c_.layout = registered_;
  c_.layout.world = c_.world();
  lay_out(c_.layout);
  if (c_.gather) former_bytes_ += c_.gather->sent_bytes() + c_.reduce->sent_bytes();
  c_.gather = c_.parent->split(0, c_.rank());
  c_.reduce =
      c_.gather->split(0, c_.rank());  // a part: what peers read of one they read of the other
  if (c_.config.asynchronous_save && !c_.save) c_.save = c_.parent->split(0, c_.rank());
  // A whole pass, and what an update starts, fit into a stream: putting work in never waits for
  // peers.
  const std::size_t tasks = 256 + 4 * (c_.layout.flats.size() + c_.layout.units.size());
  c_.gather_stream = c_.gather->make_stream("gather", tasks);
  c_.reduce_stream = c_.reduce->make_stream("reduce", tasks);
  c_.state = std::make_unique<State>(c_.layout,
                                     plan_state(c_.layout, c_.config, c_.groups, c_.unit_memory),
                                     c_.config, *c_.gather);
  if (c_.state->in_tiles()) open_tiles();
  gatherer_.prepare();
  reducer_.prepare();
  visits_ = visits(c_.layout, *c_.state);
  log::info("{} elements in {} parameters and {} units, stage {}, {} ranks", c_.layout.elements(),
            c_.layout.parameters.size(), c_.layout.units.size(), c_.config.stage, c_.world());
  log::debug("kernels for {}, communicator \"{}\"", arithmetic().name, c_.gather->backend());
  for (const InventoryEntry& entry : c_.state->plan().inventory)
    log::debug("{}: {} bytes for {}", entry.name, entry.bytes, name_of(entry.kind));
}

// A folder may fail one rank alone: all throw the same.
void Engine::open_tiles() {
  const auto failed = checkpoint::failure_of([&] { c_.state->open_tiles(); });
  checkpoint::agree(c_.gather->control(), "opening of swap files", failed);
}

std::vector<std::vector<Engine::Visit>> Engine::visits(const Layout& layout,
                                                       const State& state) const {
  std::vector<std::vector<Visit>> result(layout.flats.size());
  for (std::size_t f = 0; f < layout.flats.size(); ++f) {
    const FlatInfo& flat = layout.flats[f];
    const FlatArrays& arrays = state.arrays(static_cast<int>(f));
    for (const Piece& piece :
         pieces(layout, flat, arrays.owned_first, arrays.owned_first + arrays.owned_count)) {
      const ParameterInfo& parameter = layout.parameters[piece.parameter];
      Visit& visit = result[f].emplace_back();
      visit.parameter = piece.parameter;
      visit.run = state.run(layout, piece, c_.groups[parameter.group], c_.config.precision.moments,
                            static_cast<std::byte*>(c_.trainer_data[piece.parameter]));
      visit.place = state.place(layout, piece, c_.groups[parameter.group]);
      visit.run.key = hash_of(parameter.name.data(), parameter.name.size());
    }
  }
  return result;
}

void Engine::fill(const Initializer& initializer, const std::function<bool(int parameter)>& which) {
  std::vector<float> values(static_cast<std::size_t>(kFillElements));
  for (std::size_t f = 0; f < visits_.size(); ++f) {
    const bool trainable = c_.layout.flats[f].trainable;
    for (const Visit& visit : visits_[f]) {
      if (!which(visit.parameter)) continue;
      const ParameterInfo& parameter = c_.parameter(visit.parameter);
      const auto count = static_cast<std::int64_t>(visit.run.count);
      for (std::int64_t first = 0; first < count; first += kFillElements) {
        const auto n = static_cast<std::size_t>(std::min(kFillElements, count - first));
        const update::Run run = update::part(visit.run, static_cast<std::size_t>(first), n);
        initializer({.name = parameter.name,
                     .shape = parameter.shape,
                     .first_element = run.first_element,
                     .values = std::span(values).first(n)});
        if (trainable) {
          c_.state->with_state(visit.place, visit.run, static_cast<std::size_t>(first), n,
                               Use::update, [&](const update::Run& piece, std::size_t at) {
                                 update::store_weights(
                                     piece, values.data() + (at - static_cast<std::size_t>(first)));
                               });
        } else {
          arithmetic().cast(values.data(), DType::f32, run.weight, run.weight_type, n);
        }
      }
      if (trainable) start_state(visit);
    }
  }
}

void Engine::start_state(const Visit& visit) {
  const Rule& rule = c_.groups[c_.parameter(visit.parameter).group];
  for (std::size_t k = 0; k < update::state_names(rule).size(); ++k) {
    const float start = update::initial_state(rule, k);
    const std::vector<float> values(
        std::min(visit.run.count, static_cast<std::size_t>(kFillElements)), start);
    for (std::size_t first = 0; first < visit.run.count; first += values.size()) {
      const std::size_t n = std::min(values.size(), visit.run.count - first);
      c_.state->with_state(
          visit.place, visit.run, first, n, Use::update, [&](const update::Run& run, std::size_t) {
            arithmetic().cast(values.data(), DType::f32, run.state[k], run.state_type, run.count);
          });
    }
  }
}

void Engine::publish_all() {
  for (int u = 0; u < static_cast<int>(c_.layout.units.size()); ++u) gatherer_.publish(u);
  gatherer_.settle();
}

void Engine::require_fresh() const {
  if (!broken_.empty()) require_usable();
  if (ready_)
    throw InvalidArgument(
        fmt::format("rank {}: initialize called twice; add units with relayout", c_.rank()));
  if (registered_.units.empty())
    throw InvalidArgument(fmt::format("rank {}: initialize before any unit was added", c_.rank()));
}

void Engine::initialize(const Initializer& initializer) {
  if (!initializer)
    throw InvalidArgument(fmt::format("rank {}: initialize: the initializer is empty", c_.rank()));
  require_fresh();
  agree();
  set_up();
  fill(initializer, [](int) { return true; });
  publish_all();
  ready_ = true;
}

void Engine::initialize_from_data() {
  require_fresh();
  for (std::size_t p = 0; p < registered_.parameters.size(); ++p) {
    if (!c_.trainer_data[p] && count_elements("", registered_.parameters[p].shape) > 0) {
      throw InvalidArgument(fmt::format(
          "rank {}: parameter \"{}\": initialize_from_data, but it gives no data; use initialize",
          c_.rank(), registered_.parameters[p].name));
    }
  }
  agree();
  // Rank 0's tensors are everybody's: broadcast straight into the trainer's memory, then take the
  // own parts from there.
  for (const ParameterInfo& parameter : registered_.parameters) {
    const auto index = static_cast<std::size_t>(&parameter - registered_.parameters.data());
    const auto bytes = static_cast<std::size_t>(count_elements(parameter.name, parameter.shape)) *
                       size_of(parameter.dtype);
    if (bytes == 0) continue;
    ProcessGroup(c_.parent).broadcast({static_cast<std::byte*>(c_.trainer_data[index]), bytes}, 0);
  }
  initialize([this](const InitializeRun& run) {
    const int p = names_.find(run.name)->second;
    const ParameterInfo& parameter = registered_.parameters[p];
    const auto* data = static_cast<const std::byte*>(c_.trainer_data[p]) +
                       run.first_element * size_of(parameter.dtype);
    arithmetic().cast(data, parameter.dtype, run.values.data(), DType::f32, run.values.size());
  });
}

void Engine::relayout(const Initializer& initializer) {
  if (!initializer)
    throw InvalidArgument(fmt::format("rank {}: relayout: the initializer is empty", c_.rank()));
  require_usable();
  require_between_steps("relayout");
  require_released("relayout");
  wait_saved();
  gatherer_.begin_pass(Pass::none);  // joins what an evaluation left: peers may be waiting in it
  // Whatever is refused is refused before anything is given up.
  Layout wanted = registered_;
  for (std::size_t p = 0; p < wanted.parameters.size(); ++p)
    wanted.parameters[p].trainable = wanted_trainable_[p];
  std::swap(registered_, wanted);
  try {
    agree();
    Layout layout = registered_;
    layout.world = c_.world();
    lay_out(layout);
    plan_state(layout, c_.config, c_.groups, c_.unit_memory);
  } catch (...) {
    std::swap(registered_, wanted);
    throw;
  }
  std::fill(c_.masked.begin(), c_.masked.end(), 0);
  try {
    lay_out_anew(initializer);
  } catch (const std::exception& error) {
    mark_broken(error.what());
    throw;
  }
}

void Engine::lay_out_anew(const Initializer& initializer) {
  gatherer_.invalidate();
  // The old communicators, state and arrays live until every rank has taken what it needs from
  // them.
  const Layout old_layout = std::move(c_.layout);
  const auto old_visits = std::move(visits_);
  const std::shared_ptr<Communicator> old_gather = c_.gather;
  const std::shared_ptr<Communicator> old_reduce = c_.reduce;
  const std::unique_ptr<State> old_state = std::move(c_.state);
  set_up();
  const auto old_count = static_cast<int>(old_layout.parameters.size());
  fill(initializer, [&](int parameter) { return parameter >= old_count; });
  carry_over(old_layout, *old_state, old_visits);
  publish_all();
  ++changes_;
  ProcessGroup(c_.parent).barrier();
}

// Flat by flat and kind by kind: whole in fp32 (exact for every type), from which each rank takes
// its new parts. A trainable parameter's weights are its masters; where they are given up, the
// weight keeps the bits it was rounded to.
void Engine::carry_over(const Layout& old_layout, State& old_state,
                        const std::vector<std::vector<Visit>>& old_visits) {
  for (int f = 0; f < static_cast<int>(old_layout.flats.size()); ++f) {
    const FlatInfo& flat = old_layout.flats[f];
    std::vector<std::string> kinds = {"parameter"};
    if (flat.trainable) {
      kinds.emplace_back("master");
      const auto& states = old_state.plan(f).state_kinds;
      kinds.insert(kinds.end(), states.begin(), states.end());
    }
    for (const std::string& kind : kinds) {
      const std::vector<float> whole =
          whole_values(old_layout, old_state, old_visits, f, kind, "relayout");
      for (const std::vector<Visit>& visits : visits_) {
        for (const Visit& visit : visits) {
          if (visit.parameter >= static_cast<int>(old_layout.parameters.size())) continue;
          const ParameterInfo& before = old_layout.parameters[visit.parameter];
          if (before.flat != f) continue;
          carry_over(
              before, visit, kind,
              whole.data() + before.offset + static_cast<std::int64_t>(visit.run.first_element));
        }
      }
    }
  }
  for (std::size_t p = 0; p < old_layout.parameters.size(); ++p) {
    if (c_.parameter(static_cast<int>(p)).trainable && !old_layout.parameters[p].trainable)
      step_counts_[p] = 0;  // its state starts anew
  }
}

void Engine::store(const Visit& visit, const float* values) {
  c_.state->with_state(
      visit.place, visit.run, Use::update,
      [&](const update::Run& run, std::size_t at) { update::store_weights(run, values + at); });
}

void Engine::carry_over(const ParameterInfo& before, const Visit& visit, std::string_view kind,
                        const float* values) {
  const bool trainable = c_.parameter(visit.parameter).trainable;
  if (kind == "parameter") {
    if (!trainable) {
      arithmetic().cast(values, DType::f32, visit.run.weight, visit.run.weight_type,
                        visit.run.count);
    } else if (!before.trainable) {
      store(visit, values);
      start_state(visit);
    }
    return;
  }
  if (!trainable) return;
  if (kind == "master") {
    store(visit, values);
    return;
  }
  const auto names = update::state_names(c_.groups[before.group]);
  const auto name = std::find(names.begin(), names.end(), kind);
  if (name == names.end()) return;
  const auto k = static_cast<std::size_t>(name - names.begin());
  c_.state->with_state(
      visit.place, visit.run, Use::update, [&](const update::Run& run, std::size_t at) {
        arithmetic().cast(values + at, DType::f32, run.state[k], run.state_type, run.count);
      });
}

}  // namespace ration::detail
