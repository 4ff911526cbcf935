#include "options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>

#include "text.hpp"

namespace chargpt {

namespace {

/// A wrong combination of flags that are right one by one.
[[noreturn]] void refuse(const std::string& why) {
  throw UsageError(2, why);
}

void require_writable(const char* flag, const std::string& file) {
  if (file.empty()) return;
  const std::filesystem::path path(file);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) refuse(flag + (": " + file) + " is a folder");
  if (!std::filesystem::is_directory(folder, none)) {
    refuse(flag + (": there is no folder " + folder.string()));
  }
  const bool exists = std::filesystem::exists(path, none);
  if (access((exists ? path : folder).c_str(), W_OK) != 0) {
    refuse(flag + (": cannot write " + file) + ": " + std::strerror(errno));
  }
}

/// A finite number of 0 or more.
CLI::Validator number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= 0;
        return good && std::isfinite(value) ? "" : text + " is not a number of 0 or more";
      },
      "");
}

/// A whole number; `most` is there to keep products of sizes within their types.
CLI::Validator whole(int least, int most = 2147483647) {
  return CLI::Range(least, most);
}

double default_learning_rate(const std::string& optimizer) {
  if (optimizer == "sgd") return 0.1;
  if (optimizer == "adagrad") return 1e-2;
  if (optimizer == "lion") return 3e-4;
  return 3e-3;
}

void check(Options& options) {
  const Shape& shape = options.shape;
  if (shape.width % shape.heads != 0) {
    refuse("--width " + std::to_string(shape.width) + " is not divisible by --heads " +
           std::to_string(shape.heads));
  }
  if (options.config.precision.master == ration::Master::split &&
      options.config.precision.parameter != ration::DType::bf16) {
    refuse("--master split needs --dtype bf16: an f32 model has no separate master");
  }
  if (options.ranks) sequences_per_rank(options, *options.ranks);
  require_writable("--report", options.report);
  require_writable("--trace", options.trace);
  if (options.text.empty()) options.text = licence_texts();
  if (options.text.empty()) {
    refuse("no licence texts in /usr/share/common-licenses; name a text with --text FILE");
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  ration::Config& config = options.config;
  std::string schedule = "cosine", dtype = "f32", master = "fp32", moments = "f32", accumulation,
              offload = "none";
  int resident_mb = 0;
  std::optional<double> learning_rate;

  CLI::App app("Trains a character-level GPT on text, its model state sharded by Ration.");
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "Print this and exit");
  const auto one_of = [](const std::vector<std::string>& names) { return CLI::IsMember(names); };

  app.add_option("--text", options.text, "Files to learn, joined (default: the licence texts)");
  app.add_option("--ranks", options.ranks, "Ranks, as threads (default: RATION_RANKS, or 4)")
      ->check(whole(1, 256));
  app.add_option("--stage", config.stage, "0 all replicated, to 3 all sharded")
      ->default_val(3)
      ->check(whole(0, 3));
  app.add_option("--steps", options.steps, "Steps to train")->check(whole(0));
  app.add_option("--batch", options.batch, "Sequences a step, over all ranks")->check(whole(1));
  app.add_option("--micro-steps", options.micro_steps, "Parts of a rank's batch, one by one")
      ->check(whole(1, 65536));
  app.add_option("--seq", options.shape.sequence, "Tokens in a sequence")->check(whole(1, 65536));
  app.add_option("--layers", options.shape.layers, "Blocks")->check(whole(1, 1024));
  app.add_option("--width", options.shape.width, "Channels")->check(whole(1, 65536));
  app.add_option("--heads", options.shape.heads, "Attention heads")->check(whole(1, 65536));
  app.add_option("--dtype", dtype, "Weights and gradients: f32 or bf16")
      ->check(one_of({"f32", "bf16"}));
  app.add_option("--master", master, "bf16: whole fp32 weights, or split (16-bit residues)")
      ->check(one_of({"fp32", "split"}));
  app.add_option("--moments", moments, "Moments: f32 or bf16")->check(one_of({"f32", "bf16"}));
  app.add_option("--accumulation", accumulation, "Micro-steps add up local or sharded")
      ->check(one_of({"local", "sharded"}));
  app.add_option("--optimizer", options.optimizer, "adamw, adam, sgd, adagrad or lion")
      ->check(one_of({"adamw", "adam", "sgd", "adagrad", "lion"}));
  app.add_option("--lr", learning_rate, "Learning rate (default: the optimizer's, adamw 0.003)")
      ->check(number());
  app.add_option("--schedule", schedule, "cosine or constant")
      ->check(one_of({"cosine", "constant"}));
  app.add_option("--warmup", options.warmup, "Steps of linear warm-up")->check(whole(0));
  app.add_option("--weight-decay", options.weight_decay, "Decay of tensors of two dimensions")
      ->check(number());
  app.add_option("--clip", options.clip, "Largest norm of the gradient; 0: no limit")
      ->check(number());
  app.add_option("--seed", options.seed, "Of the weights and of the order of the data")
      ->check(number());
  app.add_option("--save", options.save,
                 "Folder to save checkpoints in, at the end and when stopped");
  app.add_option("--save-every", options.save_every, "Steps between checkpoints; 0: none between")
      ->check(whole(0));
  app.add_option("--keep", options.keep, "Checkpoints that stay, at least 2; 0: all")
      ->check(whole(0));
  app.add_flag("--save-beside", config.asynchronous_save,
               "Save on a thread beside the training (but for the last)");
  app.add_option("--resume", options.resume,
                 "Folder to go on from; auto: that of --save, if there is a checkpoint");
  app.add_option("--offload", offload, "Where masters and moments rest: none, host or disk")
      ->check(one_of({"none", "host", "disk"}));
  app.add_option("--offload-dir", config.offload.directories,
                 "Folders for swap files (default: the one for temporary files)");
  app.add_option("--tile-elements", config.tile_elements,
                 "Elements of a tile of state; 0: the library's choice")
      ->check(whole(0));
  app.add_option("--resident-mb", resident_mb, "Memory for tiles of state that stay, MiB")
      ->check(whole(0));
  app.add_option("--report", options.report, "JSON file to write at the end");
  app.add_option("--trace", options.trace, "Timeline to write at the end, for Perfetto");
  app.add_flag("--quiet", options.quiet, "Print the digest only");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    throw UsageError(0, app.help());
  } catch (const CLI::ParseError& error) {
    throw UsageError(2, error.what());
  }
  if (offload != "none") {
    config.offload.optimizer_state = offload == "disk" ? ration::Tier::disk : ration::Tier::host;
  }
  config.offload.resident_bytes = static_cast<std::uint64_t>(resident_mb) << 20;
  if (config.offload.directories.empty())
    config.offload.directories = {std::filesystem::temp_directory_path().string()};
  config.precision.parameter = dtype == "bf16" ? ration::DType::bf16 : ration::DType::f32;
  config.precision.master = master == "split" ? ration::Master::split : ration::Master::fp32;
  config.precision.moments = moments == "bf16" ? ration::DType::bf16 : ration::DType::f32;
  config.micro_steps = options.micro_steps;
  if (accumulation == "local") config.accumulation = ration::Accumulation::local;
  if (accumulation == "sharded") config.accumulation = ration::Accumulation::sharded;
  options.cosine = schedule == "cosine";
  options.learning_rate = learning_rate.value_or(default_learning_rate(options.optimizer));
  if (options.resume == "auto") {
    if (options.save.empty())
      refuse("--resume auto looks in the folder of --save, which is not given");
    options.resume_if_any = true;
    options.resume = options.save;
  }
  if (options.save.empty() && (options.save_every > 0 || config.asynchronous_save))
    refuse("--save-every and --save-beside need --save");
  check(options);
  return options;
}

int sequences_per_rank(const Options& options, int world) {
  const std::int64_t parts = std::int64_t{world} * options.micro_steps;
  if (options.batch % parts != 0) {
    refuse("--batch " + std::to_string(options.batch) + " is not divisible by " +
           std::to_string(world) + " ranks x " + std::to_string(options.micro_steps) +
           " micro-steps");
  }
  return static_cast<int>(options.batch / parts);
}

ration::Rule rule_of(const Options& options, double weight_decay) {
  const double rate = options.learning_rate;
  if (options.optimizer == "sgd") {
    return ration::SGD{.learning_rate = rate, .momentum = 0.9, .weight_decay = weight_decay};
  }
  if (options.optimizer == "adagrad") {
    return ration::Adagrad{.learning_rate = rate, .weight_decay = weight_decay};
  }
  if (options.optimizer == "lion") {
    return ration::Lion{.learning_rate = rate, .weight_decay = weight_decay};
  }
  if (options.optimizer == "adam") {
    return ration::Adam{.learning_rate = rate, .beta2 = 0.95, .weight_decay = weight_decay};
  }
  return ration::AdamW{.learning_rate = rate, .beta2 = 0.95, .weight_decay = weight_decay};
}

double learning_rate_at(const Options& options, int step) {
  if (step < options.warmup) return options.learning_rate * (step + 1) / options.warmup;
  if (!options.cosine) return options.learning_rate;
  const double progress =
      static_cast<double>(step - options.warmup) / std::max(1, options.steps - options.warmup);
  return options.learning_rate * (0.55 + 0.45 * std::cos(std::numbers::pi * progress));
}

}  // namespace chargpt
