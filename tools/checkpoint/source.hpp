#pragma once
// What the checkpoint subcommands share: which step a folder means, the progress bar, words for
// numbers.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.hpp"
#include "checkpoint/merge.hpp"

namespace ration::tools {

/// DIR and --step.
struct StepChoice {
  std::string folder;
  std::optional<std::int64_t> step;
};
void add_step_choice(CLI::App& command, StepChoice& choice);

struct Source {
  std::filesystem::path folder;  ///< of the step
  checkpoint::Manifest manifest;
};
/// The newest step of a root, the one asked for, or the folder itself. Throws as a load does.
Source open_source(const StepChoice& choice);

/// Draws on stderr where that is a terminal; otherwise says nothing.
checkpoint::Progress progress_bar(std::string what);

/// "1.5 GiB"
std::string bytes_text(std::uint64_t bytes);

void print_json(const nlohmann::json& json);

}  // namespace ration::tools
