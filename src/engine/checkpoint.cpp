// Saving and loading: when they may be called, what ranks compare first, what comes back besides
// arrays.

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "checkpoint/agreement.hpp"
#include "checkpoint/foreign.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "core/record.hpp"
#include "engine/background_save.hpp"
#include "engine/part.hpp"

namespace ration::detail {
namespace {

constexpr std::size_t kExtraLimit = std::size_t{4} << 20;

void validate(std::span<const checkpoint::Named> optimizers, std::string_view call) {
  if (optimizers.empty()) throw InvalidArgument(fmt::format("{} of no optimizers", call));
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    const checkpoint::Named& named = optimizers[i];
    validate_name("optimizer", named.name);
    if (!named.optimizer)
      throw InvalidArgument(fmt::format("{}: optimizer \"{}\" is null", call, named.name));
    for (std::size_t j = 0; j < i; ++j) {
      if (optimizers[j].name == named.name || optimizers[j].optimizer == named.optimizer) {
        throw InvalidArgument(fmt::format("{}: optimizer \"{}\" is given twice", call, named.name));
      }
    }
  }
}

void validate(const SaveOptions& options) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : options.extra) {
    validate_name("extra", name);
    bytes += name.size() + value.size();
  }
  if (bytes > kExtraLimit) {
    throw InvalidArgument(
        fmt::format("save: extra holds {} bytes, at most {} go into the manifest; keep more in a "
                    "file of your own",
                    bytes, kExtraLimit));
  }
  if (options.step && *options.step < 0)
    throw InvalidArgument(fmt::format("save: step is {}, must not be negative", *options.step));
  if (options.keep < 0)
    throw InvalidArgument(fmt::format("save: keep is {}, must not be negative", options.keep));
}

}  // namespace

void Engine::agree_on_call(Call call) {
  exchange(c_.reduce->control(), record(call, std::nullopt), buffers_, control_bytes_);
}

void Engine::require_same_ranks(const Engine& other, std::string_view call) const {
  if (other.c_.world() != c_.world() || other.c_.rank() != c_.rank()) {
    throw InvalidArgument(
        fmt::format("rank {}: {}: an optimizer is over {} ranks, another over {}; save them apart",
                    c_.rank(), call, c_.world(), other.c_.world()));
  }
}

SaveReport Engine::save(const std::string& root, std::span<const checkpoint::Named> optimizers,
                        const SaveOptions& options) {
  validate(optimizers, "save");
  validate(options);
  Engine& lead = optimizers.front().optimizer->engine();
  for (const checkpoint::Named& named : optimizers) {
    Engine& engine = named.optimizer->engine();
    engine.require_usable();
    engine.require_between_steps("save");
    engine.require_released("save");
    engine.require_same_ranks(lead, "save");
    if (options.asynchronous && !engine.c_.config.asynchronous_save) {
      throw InvalidArgument(fmt::format(
          "rank {}: an asynchronous save of \"{}\" needs Config::asynchronous_save, which "
          "plans its memory",
          lead.c_.rank(), named.name));
    }
  }
  for (const checkpoint::Named& named : optimizers) named.optimizer->engine().wait_saved();
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<const checkpoint::SavedPart*> saved;
  for (const checkpoint::Named& named : optimizers) {
    Engine& engine = named.optimizer->engine();
    engine.gatherer_.begin_pass(Pass::none);  // joins what an evaluation left
    engine.agree_on_call(Call::save);
    saved.push_back(parts.emplace_back(std::make_unique<Part>(engine, named.name)).get());
  }
  checkpoint::SaveRequest request{.root = root,
                                  .step = options.step.value_or(lead.steps_),
                                  .extra = options.extra,
                                  .keep = options.keep};
  Saved now{.root = root, .step = request.step, .extra = options.extra};
  for (const checkpoint::Named& named : optimizers) {
    const Engine& engine = named.optimizer->engine();
    now.optimizers.emplace_back(named.name, engine.changes_, engine.options_hash());
  }
  if (lead.saved_ && lead.saved_->first == now) request.already = lead.saved_->second;
  if (options.asynchronous) {
    std::vector<std::unique_ptr<checkpoint::SavedPart>> copies;
    for (std::size_t i = 0; i < parts.size(); ++i)
      copies.push_back(optimizers[i].optimizer->engine().copy(*parts[i]));
    const auto background =
        std::make_shared<BackgroundSave>(lead.c_.save, std::move(request), std::move(copies));
    for (const checkpoint::Named& named : optimizers)
      named.optimizer->engine().background_ = background;
    lead.being_saved_ = std::move(now);
    return {.step = lead.being_saved_->step};
  }
  SaveReport report = checkpoint::save(lead.c_.parent->control(), request, saved);
  lead.saved_.emplace(std::move(now), report.folder);
  return report;
}

std::unique_ptr<checkpoint::SavedPart> Engine::copy(const Part& part) const {
  std::vector<std::byte*> places;
  for (std::size_t f = 0; f < c_.layout.flats.size(); ++f)
    places.push_back(c_.state->entry(c_.state->plan(static_cast<int>(f)).snapshot));
  return std::make_unique<SavedCopy>(part, places);
}

SaveReport Engine::wait_saved() {
  if (!background_) return {};
  // Whatever comes of it, it is over.
  const std::shared_ptr<BackgroundSave> background = std::exchange(background_, nullptr);
  const std::optional<Saved> saved = std::exchange(being_saved_, std::nullopt);
  SaveReport report = background->wait();
  if (saved && !report.folder.empty()) saved_.emplace(*saved, report.folder);
  return report;
}

// On every rank in the same step: some may learn of it only here.
void Engine::throw_failed_save(const HeaderResult& agreed) {
  if (agreed.save_failed) wait_saved();
}

LoadReport Engine::load(const std::string& root, std::span<const checkpoint::Named> optimizers,
                        const LoadOptions& options) {
  validate(optimizers, "load");
  Engine& lead = optimizers.front().optimizer->engine();
  for (const checkpoint::Named& named : optimizers)
    named.optimizer->engine().require_same_ranks(lead, "load");
  for (const checkpoint::Named& named : optimizers) {
    named.optimizer->engine().wait_saved();  // its copy is part of the state that may be given up
    named.optimizer->engine().prepare_to_load();
  }
  Control& control = lead.c_.parent->control();
  const checkpoint::Opened opened = checkpoint::open(*lead.c_.parent, root, options);

  std::vector<std::unique_ptr<Part>> parts;
  std::vector<checkpoint::LoadedPart*> loaded;
  for (const checkpoint::Named& named : optimizers) {
    loaded.push_back(
        parts.emplace_back(std::make_unique<Part>(named.optimizer->engine(), named.name)).get());
  }
  // What a rank has nothing of it cannot find missing.
  std::optional<checkpoint::LoadPlan> plan;
  checkpoint::agree(control, "plan of a load",
                    checkpoint::failure_of([&] { plan.emplace(opened, loaded, options); }));

  // From here values change: whoever fails leaves all ranks' optimizers without any.
  const auto failed = checkpoint::failure_of([&] { plan->read(); });
  try {
    checkpoint::agree(control, "load", failed);
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      optimizers[i].optimizer->engine().adopt_loaded(*plan, i, options);
    }
  } catch (const std::exception& error) {
    for (const checkpoint::Named& named : optimizers) {
      named.optimizer->engine().mark_broken(
          fmt::format("a load of {} failed: {}", opened.folder.string(), error.what()));
    }
    throw;
  }
  LoadReport report;
  report.step = opened.manifest.step;
  report.world = static_cast<int>(opened.manifest.shards.size());
  report.folder = opened.folder.string();
  report.extra = opened.manifest.extra;
  report.missing = plan->missing();
  report.unexpected = plan->unexpected();
  return report;
}

// Gives the optimizer memory to load into. If it is broken on any rank all start over: what was
// under way is given up, and its memory freed only when no rank reads it any more.
void Engine::prepare_to_load() {
  enum class Condition : std::uint8_t { without_values, ready, middle_of_step, broken };
  Condition mine = Condition::without_values;
  if (!broken_.empty()) {
    mine = Condition::broken;
  } else if (ready_) {
    mine = micro_open_ || reduced_ || evaluating_ ? Condition::middle_of_step : Condition::ready;
  }
  const auto refused = checkpoint::failure_of([&] {
    require_released("load");
    if (registered_.units.empty()) throw InvalidArgument("load before any unit was added");
  });
  const Bytes all = checkpoint::agree(c_.parent->control(), "load", refused, plain_record(mine));
  const auto any = [&](Condition condition) {
    return std::find(all.begin(), all.end(), static_cast<std::byte>(condition)) != all.end();
  };
  if (any(Condition::broken)) {
    start_over();
  } else if (any(Condition::middle_of_step)) {
    throw InvalidArgument(fmt::format(
        "rank {}: load in the middle of a step or an evaluation; end it first", c_.rank()));
  } else if (any(Condition::ready) && any(Condition::without_values)) {
    throw InvalidArgument(fmt::format(
        "rank {}: load, but only some ranks have called initialize; call it on all or on none",
        c_.rank()));
  }
  if (ready_) {
    gatherer_.begin_pass(Pass::none);  // joins what an evaluation left
    gatherer_.settle();
    agree_on_call(Call::load);  // from here no rank reads the shards
    gatherer_.invalidate();
    return;
  }
  agree();
  set_up();
}

void Engine::start_over() {
  if (c_.gather_stream) {
    c_.gather_stream->abandon();
    c_.reduce_stream->abandon();
    c_.gather_stream.reset();
    c_.reduce_stream.reset();
  }
  ProcessGroup(c_.parent).barrier();
  ready_ = false;
  evaluating_ = false;
  broken_.clear();
  end_step();
}

// States and step counts as before the first step.
void Engine::begin_training(const std::function<bool(std::string_view parameter)>& which) {
  for (const std::vector<Visit>& visits : visits_) {
    for (const Visit& visit : visits) {
      const ParameterInfo& parameter = c_.parameter(visit.parameter);
      if (parameter.trainable && which(parameter.name)) start_state(visit);
    }
  }
  for (std::size_t p = 0; p < step_counts_.size(); ++p) {
    if (which(c_.parameter(static_cast<int>(p)).name)) step_counts_[p] = 0;
  }
}

void Engine::adopt_loaded(const checkpoint::LoadPlan& plan, std::size_t part,
                          const LoadOptions& options) {
  const checkpoint::OptimizerEntry& source = plan.source(part);
  begin_training([&](std::string_view name) {
    return !plan.brings_state(part, name) && (!ready_ || plan.find(part, name));
  });
  for (std::size_t p = 0; p < step_counts_.size(); ++p) {
    const ParameterInfo& parameter = c_.parameter(static_cast<int>(p));
    if (!plan.brings_state(part, parameter.name)) continue;
    const checkpoint::ParameterEntry& entry = *plan.find(part, parameter.name);
    step_counts_[p] = entry.step_count;
    if (!parameter.trainable) continue;
    c_.masked[p] = entry.masked;
    wanted_trainable_[p] = !entry.masked;
  }
  if (options.parameters_only) {
    steps_ = 0;
    loss_scale_ = c_.config.loss_scale.initial;
    good_steps_ = 0;
  } else {
    steps_ = source.steps;
    loss_scale_ = source.loss_scale;
    good_steps_ = source.good_steps;
    for (std::size_t g = 0; g < c_.groups.size() && g < source.groups.size(); ++g) {
      if (update::name_of(c_.groups[g]) == source.groups[g].rule)
        update::set_options(c_.groups[g], source.groups[g].options);
    }
    hash_rules();
  }
  ++changes_;
  publish_all();
  ready_ = true;
}

LoadReport Engine::load_parameters(const std::string& file, const LoadOptions& options) {
  wait_saved();
  prepare_to_load();
  Control& control = c_.parent->control();
  LoadReport report{.world = 1, .folder = file};
  std::unique_ptr<checkpoint::ForeignFile> opened;
  const auto unfit = checkpoint::failure_of([&] {
    opened = checkpoint::open_foreign(file);
    for (const auto& tensor : opened->tensors()) report.unexpected.push_back(tensor.name);
    for (const ParameterInfo& parameter : c_.layout.parameters) {
      const int index = opened->find(parameter.name);
      if (index < 0) {
        report.missing.push_back(parameter.name);
        continue;
      }
      std::erase(report.unexpected, parameter.name);
      const auto& shape = opened->tensors()[static_cast<std::size_t>(index)].shape;
      if (shape != parameter.shape) {
        throw InvalidArgument(fmt::format("parameter \"{}\" has shape [{}], in {} it has [{}]",
                                          parameter.name, fmt::join(parameter.shape, ", "), file,
                                          fmt::join(shape, ", ")));
      }
    }
    for (const TiedName& tied : c_.layout.tied) std::erase(report.unexpected, tied.name);
    if (!report.missing.empty() && !options.allow_missing) {
      throw InvalidArgument(fmt::format(
          "parameter \"{}\" ({} in all) is not in {}; LoadOptions::allow_missing lets it keep what "
          "it is",
          report.missing.front(), report.missing.size(), file));
    }
    if (!report.unexpected.empty() && !options.allow_unexpected) {
      throw InvalidArgument(fmt::format(
          "{} has \"{}\" ({} in all), which is unknown here; LoadOptions::allow_unexpected passes "
          "over it",
          file, report.unexpected.front(), report.unexpected.size()));
    }
  });
  checkpoint::agree(control, "foreign weights", unfit);
  Part part(*this, "optimizer");
  const auto failed = checkpoint::failure_of([&] { read_foreign(*opened, part); });
  try {
    checkpoint::agree(control, "load", failed);
  } catch (const std::exception& error) {
    mark_broken(fmt::format("a load of {} failed: {}", file, error.what()));
    throw;
  }
  begin_training([&](std::string_view name) { return !ready_ || opened->find(name) >= 0; });
  steps_ = 0;
  loss_scale_ = c_.config.loss_scale.initial;
  good_steps_ = 0;
  ++changes_;
  publish_all();
  ready_ = true;
  return report;
}

void Engine::read_foreign(const checkpoint::ForeignFile& file, Part& part) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements
  std::vector<std::byte> buffer;
  const std::vector<checkpoint::WantedPiece> wanted = part.wanted();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const int index = file.find(wanted[i].parameter);
    if (index < 0) continue;
    const auto tensor = static_cast<std::size_t>(index);
    const DType type = file.tensors()[tensor].dtype;
    for (std::int64_t done = 0; done < wanted[i].count;) {
      const std::int64_t n = std::min(kPiece, wanted[i].count - done);
      buffer.resize(static_cast<std::size_t>(n) * size_of(type));
      file.read(tensor, wanted[i].first + done, n, buffer.data());
      part.write(i, -1, done, n, type, buffer.data());
      done += n;
    }
  }
}

}  // namespace ration::detail

namespace ration::checkpoint {

SaveReport save(const std::string& root, std::span<const Named> optimizers,
                const SaveOptions& options) {
  return detail::Engine::save(root, optimizers, options);
}

LoadReport load(const std::string& root, std::span<const Named> optimizers,
                const LoadOptions& options) {
  return detail::Engine::load(root, optimizers, options);
}

LoadReport load_parameters(const std::string& file, ShardedOptimizer& optimizer,
                           const LoadOptions& options) {
  return optimizer.engine().load_parameters(file, options);
}

}  // namespace ration::checkpoint
