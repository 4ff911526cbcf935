// `ration diff A B`: which values of two checkpoints differ, and by how much.

#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "checkpoint/compare.hpp"
#include "checkpoint/source.hpp"
#include "commands.hpp"

namespace ration::tools {
namespace {

struct Options {
  StepChoice a, b;
  bool json = false;
};

nlohmann::json as_json(const checkpoint::Difference& difference) {
  nlohmann::json result{{"name", difference.name}, {"what", difference.what}};
  if (!difference.text.empty()) {
    result["text"] = difference.text;
    return result;
  }
  result["count"] = difference.count;
  result["elements"] = difference.elements;
  // JSON has no NaN and no infinity.
  if (std::isfinite(difference.largest)) {
    result["largest"] = difference.largest;
  } else {
    result["largest"] = fmt::format("{}", difference.largest);
  }
  return result;
}

int run(const Options& options) {
  const Source a = open_source(options.a);
  const Source b = open_source(options.b);
  const checkpoint::Comparison comparison =
      checkpoint::compare({a.folder, a.manifest}, {b.folder, b.manifest}, progress_bar("diff"));
  const bool differ = !comparison.differences.empty();
  if (options.json) {
    auto list = nlohmann::json::array();
    for (const checkpoint::Difference& difference : comparison.differences)
      list.push_back(as_json(difference));
    print_json({{"a", a.folder.string()},
                {"b", b.folder.string()},
                {"parameters", comparison.parameters},
                {"arrays", comparison.arrays},
                {"differences", std::move(list)}});
    return differ ? 1 : 0;
  }
  for (const checkpoint::Difference& difference : comparison.differences) {
    if (!difference.text.empty()) {
      fmt::print("{}: {}: {}\n", difference.name, difference.what, difference.text);
    } else {
      fmt::print("{}: {}: {} of {} elements differ, by at most {:g}\n", difference.name,
                 difference.what, difference.count, difference.elements, difference.largest);
    }
  }
  if (!differ) {
    fmt::print("the same: {} parameters, {} arrays\n", comparison.parameters, comparison.arrays);
  }
  return differ ? 1 : 0;
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("diff", "Say which values of two checkpoints differ");
  auto options = std::make_shared<Options>();
  command->add_option("A", options->a.folder, "Folder of checkpoints, or of one step")->required();
  command->add_option("B", options->b.folder, "The other one")->required();
  command->add_option("--step-a", options->a.step, "A's step to take instead of the newest");
  command->add_option("--step-b", options->b.step, "B's step to take instead of the newest");
  command->add_flag("--json", options->json, "JSON instead of sentences");
  command->footer(
      "By parameter name, bit by bit, whatever the world size, stage and kind of master.\n"
      "Exit code: 0 the same, 1 they differ, 2 bad usage");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace ration::tools
