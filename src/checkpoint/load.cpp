#include "checkpoint/load.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>
#include <ration/process_group.hpp>

#include "checkpoint/agreement.hpp"
#include "checkpoint/folders.hpp"
#include "core/align.hpp"
#include "core/log.hpp"
#include "core/record.hpp"
#include "io/file.hpp"

namespace ration::checkpoint {
namespace {

// A committed step is whole, so what does not agree here was changed since.
std::string checked_manifest(const std::filesystem::path& folder) {
  std::string text = io::read_file(folder / kManifestName, kManifestLimit);
  const Manifest manifest = parse_manifest(text, (folder / kManifestName).string());
  for (const ShardEntry& shard : manifest.shards) {
    const std::filesystem::path path = folder / shard.file;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) throw CorruptCheckpoint(fmt::format("{}: {}", path.string(), error.message()));
    if (size != shard.size) {
      throw CorruptCheckpoint(
          fmt::format("{}: has {} bytes, the manifest says {}", path.string(), size, shard.size));
    }
  }
  return text;
}

std::vector<StepFolder> candidates(const std::filesystem::path& root, const LoadOptions& options) {
  StepFolder itself;
  // A name that ends in "/" has an empty file name.
  const std::filesystem::path folder = root.has_filename() ? root : root.parent_path();
  if (parse_step_name(folder.filename().string(), itself)) {
    itself.path = folder;
    if (options.step && *options.step != itself.step) {
      throw InvalidArgument(fmt::format("{} is step {}, asked for was step {}", folder.string(),
                                        itself.step, *options.step));
    }
    return {itself};
  }
  std::vector<StepFolder> steps = list_steps(root);
  if (steps.empty()) {
    throw InvalidArgument(fmt::format("{}: there is no checkpoint in this folder", root.string()));
  }
  if (options.step) {
    std::vector<StepFolder> asked;
    for (const StepFolder& step : steps) {
      if (step.step == *options.step) asked.push_back(step);
    }
    if (asked.empty()) {
      throw InvalidArgument(fmt::format("{}: there is no step {}; the newest is {}", root.string(),
                                        *options.step, steps.back().step));
    }
    steps = asked;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

}  // namespace

Found find(const std::filesystem::path& root, const LoadOptions& options) {
  for (const StepFolder& folder : candidates(root, options)) {
    try {
      return {folder.path, checked_manifest(folder.path)};
    } catch (const Error& error) {
      if (!options.allow_older) throw;
      log::warning("{}; trying an older step", error.what());
    }
  }
  throw CorruptCheckpoint(fmt::format("{}: every step is damaged", root.string()));
}

Opened open(Communicator& communicator, const std::filesystem::path& root,
            const LoadOptions& options) {
  Found found;
  const auto failed = failure_of([&] {
    if (communicator.rank() == 0) found = find(root, options);
  });
  Bytes words;
  RecordWriter writer(words);
  if (communicator.rank() == 0) {
    writer.put_text(found.folder.string());
    writer.put(static_cast<std::uint64_t>(found.text.size()));
  }
  const Bytes agreed = agree(communicator.control(), "choice of a checkpoint", failed, words);
  RecordReader reader(agreed);
  Opened opened;
  opened.folder = reader.get_text();
  found.text.resize(reader.get<std::uint64_t>());
  ProcessGroup group(std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
  group.broadcast(std::as_writable_bytes(std::span(found.text.data(), found.text.size())), 0);
  opened.manifest = parse_manifest(found.text, (opened.folder / kManifestName).string());
  return opened;
}

LoadPlan::LoadPlan(const Opened& opened, std::span<LoadedPart* const> parts,
                   const LoadOptions& options)
    : opened_(opened),
      parameters_only_(options.parameters_only),
      parts_(parts.begin(), parts.end()),
      names_(parts.size()) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    match(i, options);
    if (!options.parameters_only) {
      match_rules(i);
      match_states(i);
    }
    plan(i, options);
  }
}

const OptimizerEntry& LoadPlan::source(std::size_t part) const {
  return *sources_[part];
}

const ParameterEntry* LoadPlan::find(std::size_t part, std::string_view parameter) const {
  const auto found = names_[part].find(parameter);
  return found == names_[part].end() ? nullptr : found->second.parameter;
}

bool LoadPlan::brings_state(std::size_t part, std::string_view parameter) const {
  const auto found = names_[part].find(parameter);
  return !parameters_only_ && found != names_[part].end() && found->second.entry->trainable;
}

void LoadPlan::match(std::size_t part, const LoadOptions& options) {
  const OptimizerEntry& wanted = parts_[part]->describe();
  const auto& optimizers = opened_.manifest.optimizers;
  const auto source = std::find_if(optimizers.begin(), optimizers.end(),
                                   [&](const OptimizerEntry& o) { return o.name == wanted.name; });
  if (source == optimizers.end()) {
    std::vector<std::string> names;
    for (const OptimizerEntry& o : optimizers) names.push_back(o.name);
    throw InvalidArgument(fmt::format("{}: there is no optimizer \"{}\" in it; there are: {}",
                                      opened_.folder.string(), wanted.name,
                                      fmt::join(names, ", ")));
  }
  sources_.push_back(&*source);

  Names& names = names_[part];
  int flat = 0;
  for (const OptimizerEntry& o : optimizers) {
    for (const UnitEntry& unit : o.units) {
      for (const FlatEntry& entry : unit.flats) {
        if (&o == &*source) {
          for (const ParameterEntry& p : entry.parameters) names[p.name] = {flat, &entry, &p};
        }
        ++flat;
      }
    }
  }
  std::set<std::string> unexpected;
  for (const auto& [name, place] : names) unexpected.insert(name);
  for (const UnitEntry& unit : source->units) {
    for (const TiedEntry& tied : unit.tied) {
      const auto storage = names.find(tied.parameter);
      if (storage != names.end()) names[tied.name] = storage->second;
    }
  }

  for (const UnitEntry& unit : wanted.units) {
    for (const FlatEntry& entry : unit.flats) {
      for (const ParameterEntry& p : entry.parameters) {
        const auto place = names.find(p.name);
        if (place == names.end()) {
          missing_.push_back(p.name);
          continue;
        }
        unexpected.erase(place->second.parameter->name);
        if (place->second.parameter->shape != p.shape) {
          throw InvalidArgument(fmt::format("parameter \"{}\" has shape [{}], in {} it has [{}]",
                                            p.name, fmt::join(p.shape, ", "),
                                            opened_.folder.string(),
                                            fmt::join(place->second.parameter->shape, ", ")));
        }
      }
    }
  }
  if (!missing_.empty() && !options.allow_missing) {
    throw InvalidArgument(
        fmt::format("parameter \"{}\" ({} in all) is not in {}; LoadOptions::allow_missing lets it "
                    "keep what it is",
                    missing_.front(), missing_.size(), opened_.folder.string()));
  }
  if (!unexpected.empty() && !options.allow_unexpected) {
    throw InvalidArgument(fmt::format(
        "{} has parameter \"{}\" ({} in all), which is unknown here; LoadOptions::allow_unexpected "
        "passes over it",
        opened_.folder.string(), *unexpected.begin(), unexpected.size()));
  }
  unexpected_.insert(unexpected_.end(), unexpected.begin(), unexpected.end());
}

void LoadPlan::match_rules(std::size_t part) const {
  const OptimizerEntry& wanted = parts_[part]->describe();
  for (const UnitEntry& unit : wanted.units) {
    for (const FlatEntry& flat : unit.flats) {
      if (!flat.trainable) continue;
      for (const ParameterEntry& p : flat.parameters) {
        const auto place = names_[part].find(p.name);
        if (place == names_[part].end() || !place->second.entry->trainable) continue;
        const auto rule = [](const OptimizerEntry& o, const ParameterEntry& entry) {
          return o.groups[static_cast<std::size_t>(entry.group)].rule;
        };
        const std::string here = rule(wanted, p);
        const std::string there = rule(*sources_[part], *place->second.parameter);
        if (here != there) {
          throw InvalidArgument(
              fmt::format("parameter \"{}\" is updated by {}, in {} by {}; use the same rule or "
                          "LoadOptions::parameters_only",
                          p.name, here, opened_.folder.string(), there));
        }
      }
    }
  }
}

// A parameter that was frozen when it was saved has no state: it starts anew.
void LoadPlan::match_states(std::size_t part) const {
  for (const WantedPiece& piece : parts_[part]->wanted()) {
    const auto place = names_[part].find(piece.parameter);
    if (place == names_[part].end() || !place->second.entry->trainable) continue;
    for (const std::string& state : piece.states) {
      const auto& kinds = place->second.entry->kinds;
      if (std::none_of(kinds.begin(), kinds.end(),
                       [&](const KindEntry& kind) { return kind.name == state; })) {
        throw InvalidArgument(
            fmt::format("parameter \"{}\" has no \"{}\" in {}; use the same rule or "
                        "LoadOptions::parameters_only",
                        piece.parameter, state, opened_.folder.string()));
      }
    }
  }
}

void LoadPlan::plan(std::size_t part, const LoadOptions& options) {
  const std::vector<WantedPiece> wanted = parts_[part]->wanted();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const WantedPiece& piece = wanted[i];
    const auto found = names_[part].find(piece.parameter);
    if (found == names_[part].end() || piece.count == 0) continue;
    const Place& place = found->second;
    const auto kind_called = [&](std::string_view name) {
      const auto& kinds = place.entry->kinds;
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        if (kinds[k].name == name) return static_cast<int>(k);
      }
      return -1;
    };
    const auto add = [&](int kind, int state) {
      items_.push_back({.flat = place.flat,
                        .kind = kind,
                        .first = place.parameter->offset + piece.first,
                        .count = piece.count,
                        .part = part,
                        .piece = i,
                        .state = state});
    };
    const int master = piece.trainable ? kind_called("master") : -1;
    add(master >= 0 ? master : kind_called("parameter"), -1);
    if (options.parameters_only) continue;
    for (std::size_t s = 0; s < piece.states.size(); ++s) {
      const int kind = kind_called(piece.states[s]);
      if (kind >= 0) add(kind, static_cast<int>(s));
    }
  }
}

void LoadPlan::read() const {
  const Manifest& manifest = opened_.manifest;
  const auto world = static_cast<std::int64_t>(manifest.shards.size());
  const std::vector<FlatPlace> places = flats_of(manifest);
  std::vector<std::vector<Item>> per_shard(manifest.shards.size());
  for (const Item& item : items_) {
    const FlatEntry& flat = flat_at(manifest, places[static_cast<std::size_t>(item.flat)]);
    const std::int64_t shard = round_up((flat.length + world - 1) / world, kAlignElements);
    for (std::int64_t done = 0; done < item.count;) {
      const std::int64_t first = item.first + done;
      Item cut = item;
      cut.first = first;
      cut.piece_first = done;
      cut.count = std::min(item.count - done, (first / shard + 1) * shard - first);
      done += cut.count;
      per_shard[static_cast<std::size_t>(first / shard)].push_back(cut);
    }
  }
  for (std::size_t rank = 0; rank < per_shard.size(); ++rank) {
    if (!per_shard[rank].empty()) read_shard(static_cast<int>(rank), per_shard[rank]);
  }
}

void LoadPlan::read_shard(int rank, std::vector<Item>& items) const {
  const auto key = [](const auto& item) { return std::tuple(item.flat, item.kind); };
  std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
    return std::tuple(key(a), a.first) < std::tuple(key(b), b.first);
  });
  const ShardReader reader(opened_.folder, opened_.manifest, rank);
  reader.check_rest();
  std::size_t met = 0;
  std::vector<ShardReader::Request> requests;
  for (const PlacedSlice& slice : reader.slices()) {  // in the order of the file
    const auto [begin, end] =
        std::equal_range(items.begin(), items.end(), slice,
                         [&](const auto& a, const auto& b) { return key(a) < key(b); });
    if (begin == end) continue;
    ShardReader::Request& request = requests.emplace_back();
    request.slice = &slice;
    for (auto item = begin; item != end; ++item) {
      if (item->first < slice.start || item->first + item->count > slice.start + slice.length) {
        throw CorruptCheckpoint(fmt::format(
            "{}: elements {} to {} of flat {} should be in it, the slice there has {} to {}",
            reader.path().string(), item->first, item->first + item->count, item->flat, slice.start,
            slice.start + slice.length));
      }
      request.wanted.push_back({item->first - slice.start, item->count});
    }
    met += request.wanted.size();
    request.deliver = [this, &slice, item = begin](std::int64_t first, std::int64_t count,
                                                   const std::byte* from) mutable {
      while (slice.start + first >= item->first + item->count) ++item;
      parts_[item->part]->write(item->piece, item->state,
                                item->piece_first + slice.start + first - item->first, count,
                                slice.dtype, from);
    };
  }
  if (met != items.size()) {
    throw CorruptCheckpoint(fmt::format("{}: {} of {} arrays that should be in it are not there",
                                        reader.path().string(), items.size() - met, items.size()));
  }
  reader.read(requests);
}

std::optional<std::string> find_latest(const std::string& root) {
  const std::vector<StepFolder> steps = list_steps(root);
  if (steps.empty()) return std::nullopt;
  return steps.back().path.string();
}

}  // namespace ration::checkpoint
