#pragma once
// The subcommands of `ration`: each adds itself and sets the exit code when it runs: 0 fine, 1 a
// fault was found. What it throws is one line on stderr; InvalidArgument is exit code 2, the
// rest 1.

#include <CLI/CLI.hpp>

namespace ration::tools {

void add_bench_collectives(CLI::App& bench, int& exit_code);
void add_bench_checkpoint(CLI::App& bench, int& exit_code);
void add_bench_disk(CLI::App& bench, int& exit_code);
void add_bench_step(CLI::App& bench, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);
void add_import(CLI::App& app);
void add_inspect(CLI::App& app, int& exit_code);
void add_merge(CLI::App& app);
void add_postmortem(CLI::App& app, int& exit_code);
void add_reshard(CLI::App& app);
void add_verify(CLI::App& app, int& exit_code);

}  // namespace ration::tools
