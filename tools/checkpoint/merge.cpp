// `ration merge DIR -o FILE`: one file out of all shards.

#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "checkpoint/source.hpp"
#include "commands.hpp"

namespace ration::tools {
namespace {

struct Options {
  StepChoice source;
  std::string output;
  std::string what = "parameters";
  std::string dtype;
  std::uint64_t largest_file = 0;
  bool view = false;
  bool json = false;
};

std::optional<DType> dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

void run(const Options& options) {
  checkpoint::MergeOptions merge;
  merge.tensors = {.dtype = dtype_of(options.dtype), .states = options.what == "all"};
  merge.largest_file = options.largest_file;
  const Source source = open_source(options.source);
  checkpoint::MergeReport report;
  if (options.view) {
    if (options.largest_file > 0)
      throw InvalidArgument("--max-file-size and --view do not go together");
    report = checkpoint::merge_view(source.folder, source.manifest, options.output, merge.tensors);
    fmt::print(stderr,
               "ration: {} holds no values of its own: keep {} where it is, or they are read as "
               "NaN\n",
               options.output, source.folder.string());
  } else {
    merge.progress = progress_bar("merge");
    report = checkpoint::merge(source.folder, source.manifest, options.output, merge);
  }
  if (options.json) {
    print_json({{"step", source.manifest.step},
                {"source", source.folder.string()},
                {"files", report.files},
                {"tensors", report.tensors},
                {"bytes", report.bytes}});
  } else {
    fmt::print("step {}: {} tensors, {} in {}\n", source.manifest.step, report.tensors,
               bytes_text(report.bytes), fmt::join(report.files, ", "));
  }
}

}  // namespace

void add_merge(CLI::App& app) {
  auto* command = app.add_subcommand(
      "merge", "Put a checkpoint's shards together into one HDF5 or safetensors file");
  auto options = std::make_shared<Options>();
  add_step_choice(*command, options->source);
  command
      ->add_option("-o,--output", options->output,
                   "File to write: NAME.h5, NAME.hdf5 or NAME.safetensors")
      ->required();
  command
      ->add_option("--what", options->what,
                   "parameters, or all: optimizer state, too, as NAME.exp_avg, ...")
      ->check(CLI::IsMember({"parameters", "all"}))
      ->capture_default_str();
  command
      ->add_option(
          "--dtype", options->dtype,
          "Type of the weights, rounded to nearest even; f32 takes the masters where there "
          "are any (default: as the model has them)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command
      ->add_option("--max-file-size", options->largest_file,
                   "safetensors: several files of at most this, with an index; 5GB, 500MB, ...")
      ->transform(CLI::AsSizeValue(true));
  command->add_flag(
      "--view", options->view,
      "HDF5: virtual datasets over the shards instead of a copy; the shards must stay");
  command->add_flag("--json", options->json, "JSON instead of sentences");
  command->footer(
      "Names are the parameters' own; with several optimizers OPTIMIZER/PARAMETER. Tied names are "
      "hard links in "
      "HDF5, and the entry ration.tied of the metadata in safetensors.\n"
      "Exit code: 0 fine, 1 the checkpoint is damaged or a file cannot be written, 2 bad usage");
  command->callback([options] { run(*options); });
}

}  // namespace ration::tools
