// `ration verify DIR`: whether every byte of a step is what was saved.

#include "checkpoint/verify.hpp"

#include <memory>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/folders.hpp"
#include "checkpoint/source.hpp"
#include "commands.hpp"

namespace ration::tools {
namespace {

struct Options {
  StepChoice source;
  bool all = false;
  bool json = false;
};

// The steps to look at; unlike a load it takes damaged ones.
std::vector<std::filesystem::path> folders_of(const Options& options) {
  const std::filesystem::path root = options.source.folder;
  if (!std::filesystem::is_directory(root))
    throw InvalidArgument(fmt::format("{}: is not a folder", root.string()));
  if (std::filesystem::exists(root / checkpoint::kManifestName)) return {root};
  std::vector<std::filesystem::path> folders;
  for (const checkpoint::StepFolder& folder : checkpoint::list_steps(root)) {
    if (!options.source.step || folder.step == *options.source.step) folders.push_back(folder.path);
  }
  if (folders.empty()) {
    throw InvalidArgument(
        options.source.step
            ? fmt::format("{}: there is no step {}", root.string(), *options.source.step)
            : fmt::format("{}: there is no checkpoint in this folder", root.string()));
  }
  if (!options.all) folders.erase(folders.begin(), folders.end() - 1);
  return folders;
}

int run(const Options& options) {
  auto list = nlohmann::json::array();
  bool broken = false;
  for (const std::filesystem::path& folder : folders_of(options)) {
    const checkpoint::Verdict verdict = checkpoint::verify(folder, progress_bar("verify"));
    broken |= !verdict.faults.empty();
    if (options.json) {
      auto faults = nlohmann::json::array();
      for (const checkpoint::Fault& fault : verdict.faults)
        faults.push_back({{"file", fault.file}, {"reason", fault.reason}});
      list.push_back(
          {{"folder", folder.string()}, {"bytes", verdict.bytes}, {"faults", std::move(faults)}});
      continue;
    }
    for (const checkpoint::Fault& fault : verdict.faults)
      fmt::print("{}: {}\n", fault.file, fault.reason);
    if (verdict.faults.empty()) {
      fmt::print("{}: {} of state, all as it was saved\n", folder.string(),
                 bytes_text(verdict.bytes));
    }
  }
  if (options.json) print_json({{"steps", std::move(list)}});
  return broken ? 1 : 0;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("verify", "Read a checkpoint and compare every byte with its checksums");
  auto options = std::make_shared<Options>();
  add_step_choice(*command, options->source);
  command->add_flag("--all", options->all, "Every step of the folder, not the newest alone");
  command->add_flag("--json", options->json, "JSON instead of sentences");
  command->footer(
      "Names each broken file.\nExit code: 0 all is well, 1 a file is broken, 2 bad usage");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace ration::tools
