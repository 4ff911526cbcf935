// `ration reshard DIR -o DIR2 --world M` and `ration import FILE -o DIR`: checkpoints written by
// one process.

#include "checkpoint/reshard.hpp"

#include <memory>

#include <fmt/format.h>

#include "checkpoint/source.hpp"
#include "commands.hpp"

namespace ration::tools {
namespace {

struct Reshard {
  StepChoice source;
  std::string output;
  int world = 0;
  bool json = false;
};

void run(const Reshard& options) {
  const Source source = open_source(options.source);
  const checkpoint::StepFolder made = checkpoint::reshard(
      source.folder, source.manifest, options.output, options.world, progress_bar("reshard"));
  if (options.json) {
    print_json({{"folder", made.path.string()}, {"step", made.step}, {"world", options.world}});
  } else {
    fmt::print("{}: step {} of {} ranks, was of {}\n", made.path.string(), made.step, options.world,
               source.manifest.shards.size());
  }
}

struct Import {
  std::string file;
  std::string output;
  std::string optimizer = "optimizer";
  std::int64_t step = 0;
  bool json = false;
};

void run(const Import& options) {
  const auto file = checkpoint::open_foreign(options.file);
  const checkpoint::StepFolder made = checkpoint::import(*file, options.output, options.step,
                                                         options.optimizer, progress_bar("import"));
  if (options.json) {
    print_json(
        {{"folder", made.path.string()}, {"step", made.step}, {"tensors", file->tensors().size()}});
  } else {
    fmt::print("{}: {} tensors as step {}\n", made.path.string(), file->tensors().size(),
               made.step);
  }
}

}  // namespace

void add_reshard(CLI::App& app) {
  auto* command = app.add_subcommand(
      "reshard", "Write a checkpoint again as another number of ranks would have saved it");
  auto options = std::make_shared<Reshard>();
  add_step_choice(*command, options->source);
  command->add_option("-o,--output", options->output, "Folder of checkpoints to add the step to")
      ->required();
  command->add_option("--world", options->world, "Number of ranks")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag("--json", options->json, "JSON instead of a sentence");
  command->footer(
      "A load takes any world size by itself; this spares it to read the files of many ranks.\n"
      "Exit code: 0 fine, 1 the checkpoint is damaged or a file cannot be written, 2 bad usage");
  command->callback([options] { run(*options); });
}

void add_import(CLI::App& app) {
  auto* command = app.add_subcommand(
      "import", "Make a checkpoint of a safetensors or HDF5 file's weights, to start from");
  auto options = std::make_shared<Import>();
  command->add_option("FILE", options->file, "Weights by name, of f32, bf16 or f16")->required();
  command->add_option("-o,--output", options->output, "Folder of checkpoints to add it to")
      ->required();
  command->add_option("--step", options->step, "What it is called by")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->capture_default_str();
  command->add_option("--optimizer", options->optimizer, "Name of the optimizer that loads it")
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON instead of a sentence");
  command->footer(
      "The file is taken for hostile; an HDF5 file may not lead to other files.\n"
      "Exit code: 0 fine, 1 the file is not sound, 2 bad usage");
  command->callback([options] { run(*options); });
}

}  // namespace ration::tools
