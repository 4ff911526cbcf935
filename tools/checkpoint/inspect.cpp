// `ration inspect DIR`: what a folder of checkpoints, or one step, holds. Reads manifests only.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "checkpoint/folders.hpp"
#include "checkpoint/source.hpp"
#include "commands.hpp"

namespace ration::tools {
namespace {

using namespace ration::checkpoint;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

struct Options {
  StepChoice source;
  bool parameters = false;
  bool json = false;
};

struct Step {
  std::filesystem::path folder;
  Manifest manifest;
  std::string damage = {};  ///< why it cannot be read
};

struct Sums {
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;                     ///< of state
  std::map<std::string, std::uint64_t> kinds;  ///< their bytes
};

Sums sums_of(const Manifest& manifest) {
  Sums sums;
  for (const FlatPlace& place : flats_of(manifest)) {
    const FlatEntry& flat = flat_at(manifest, place);
    for (const ParameterEntry& p : flat.parameters) sums.parameters += p.count();
    for (const KindEntry& kind : flat.kinds) {
      const auto bytes = static_cast<std::uint64_t>(flat.length) * size_of(kind.dtype);
      sums.bytes += bytes;
      sums.kinds[kind.name] += bytes;
    }
  }
  return sums;
}

std::string stages_of(const Manifest& manifest) {
  std::vector<int> stages;
  for (const OptimizerEntry& optimizer : manifest.optimizers) {
    if (std::find(stages.begin(), stages.end(), optimizer.stage) == stages.end())
      stages.push_back(optimizer.stage);
  }
  return fmt::format("{}", fmt::join(stages, ","));
}

std::vector<std::string> kind_names(const FlatEntry& flat) {
  std::vector<std::string> names;
  for (const KindEntry& kind : flat.kinds)
    names.push_back(fmt::format("{}:{}", kind.name, name_of(kind.dtype)));
  return names;
}

std::vector<Step> steps_of(const StepChoice& choice) {
  const std::filesystem::path root = choice.folder;
  if (choice.step || std::filesystem::exists(root / kManifestName)) {
    Source source = open_source(choice);
    return {{source.folder, std::move(source.manifest)}};
  }
  std::vector<Step> steps;
  for (const StepFolder& folder : list_steps(root)) {
    Step& step = steps.emplace_back();
    step.folder = folder.path;
    step.manifest.step = folder.step;
    try {
      step.manifest = read_manifest(folder.path);
    } catch (const Error& error) {
      step.damage = error.what();
    }
  }
  if (steps.empty())
    throw InvalidArgument(fmt::format("{}: there is no checkpoint in this folder", root.string()));
  return steps;
}

json as_json(const Step& step, bool parameters) {
  if (!step.damage.empty())
    return {
        {"folder", step.folder.string()}, {"step", step.manifest.step}, {"damage", step.damage}};
  const Sums sums = sums_of(step.manifest);
  json result{{"folder", step.folder.string()},
              {"step", step.manifest.step},
              {"uuid", step.manifest.uuid},
              {"world", step.manifest.shards.size()},
              {"parameters", sums.parameters},
              {"bytes", sums.bytes},
              {"kinds", sums.kinds}};
  result["extra"] = json::array();
  for (const auto& [name, value] : step.manifest.extra)
    result["extra"].push_back({{"name", name}, {"bytes", value.size()}});
  result["optimizers"] = json::array();
  for (const OptimizerEntry& optimizer : step.manifest.optimizers) {
    json entry{{"name", optimizer.name},
               {"stage", optimizer.stage},
               {"steps", optimizer.steps},
               {"loss_scale", optimizer.loss_scale}};
    entry["groups"] = json::array();
    for (const GroupEntry& group : optimizer.groups)
      entry["groups"].push_back({{"rule", group.rule}, {"options", group.options}});
    if (parameters) {
      entry["units"] = json::array();
      for (const UnitEntry& unit : optimizer.units) {
        json list = json::array();
        for (const FlatEntry& flat : unit.flats) {
          for (const ParameterEntry& p : flat.parameters) {
            list.push_back({{"name", p.name},
                            {"shape", p.shape},
                            {"dtype", name_of(flat.dtype)},
                            {"trainable", flat.trainable && !p.masked},
                            {"group", p.group},
                            {"step_count", p.step_count},
                            {"state", kind_names(flat)}});
          }
        }
        json tied = json::object();
        for (const TiedEntry& t : unit.tied) tied[t.name] = t.parameter;
        entry["units"].push_back(
            {{"name", unit.name}, {"parameters", std::move(list)}, {"tied", std::move(tied)}});
      }
    }
    result["optimizers"].push_back(std::move(entry));
  }
  return result;
}

void print_table(const std::vector<Step>& steps) {
  fmt::print("{:>10} {:>6} {:>6} {:>14} {:>11}  {}\n", "step", "world", "stage", "parameters",
             "bytes", "state");
  for (const Step& step : steps) {
    if (!step.damage.empty()) {
      fmt::print("{:>10} damaged: {}\n", step.manifest.step, step.damage);
      continue;
    }
    const Sums sums = sums_of(step.manifest);
    std::vector<std::string> kinds;
    for (const auto& [kind, bytes] : sums.kinds) kinds.push_back(kind);
    fmt::print("{:>10} {:>6} {:>6} {:>14} {:>11}  {}\n", step.manifest.step,
               step.manifest.shards.size(), stages_of(step.manifest), sums.parameters,
               bytes_text(sums.bytes), fmt::join(kinds, ", "));
  }
}

void print_parameters(const Manifest& manifest) {
  for (const OptimizerEntry& optimizer : manifest.optimizers) {
    fmt::print("optimizer \"{}\": stage {}, {} steps, loss scale {}\n", optimizer.name,
               optimizer.stage, optimizer.steps, optimizer.loss_scale);
    for (const UnitEntry& unit : optimizer.units) {
      fmt::print("  unit \"{}\"\n", unit.name);
      for (const FlatEntry& flat : unit.flats) {
        for (const ParameterEntry& p : flat.parameters) {
          fmt::print("    {:<32} {:<5} [{}]{}  {}\n", p.name, name_of(flat.dtype),
                     fmt::join(p.shape, ", "), flat.trainable && !p.masked ? "" : " frozen",
                     fmt::join(kind_names(flat), " "));
        }
      }
      for (const TiedEntry& tied : unit.tied)
        fmt::print("    {:<32} tied to {}\n", tied.name, tied.parameter);
    }
  }
}

int run(const Options& options) {
  const std::vector<Step> steps = steps_of(options.source);
  bool damaged = false;
  for (const Step& step : steps) damaged |= !step.damage.empty();
  if (options.json) {
    json list = json::array();
    for (const Step& step : steps) list.push_back(as_json(step, options.parameters));
    print_json({{"steps", std::move(list)}});
  } else {
    print_table(steps);
    if (options.parameters && steps.back().damage.empty()) print_parameters(steps.back().manifest);
  }
  return damaged ? 1 : 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("inspect", "Say what a folder of checkpoints, or one step of it, holds");
  auto options = std::make_shared<Options>();
  command->add_option("DIR", options->source.folder, "Folder of checkpoints, or of one step")
      ->required();
  command->add_option("--step", options->source.step, "This step only");
  command->add_flag("--parameters", options->parameters,
                    "Units and parameters of the (newest) step, too");
  command->add_flag("--json", options->json, "JSON instead of a table");
  command->footer(
      "Reads manifests only; `ration verify` reads the data.\n"
      "Exit code: 0 fine, 1 a manifest is damaged, 2 bad usage");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace ration::tools
