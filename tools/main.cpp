// The `ration` command.

#include <algorithm>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include <ration/error.hpp>
#include <ration/version.hpp>

#include "commands.hpp"

namespace {

constexpr int kFault = 1;
constexpr int kBadUsage = 2;

int fail(const char* what, int exit_code) {
  std::string line = what;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fprintf(stderr, "ration: %s\n", line.c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Looks into checkpoints and failed jobs, measures this machine and the library on it",
      "ration");
  app.set_version_flag("--version", ration::version() + "\n" + ration::build_summary());
  app.require_subcommand(1);
  int exit_code = 0;
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine and the library on it");
  bench->require_subcommand(1);
  ration::tools::add_bench_collectives(*bench, exit_code);
  ration::tools::add_bench_checkpoint(*bench, exit_code);
  ration::tools::add_bench_disk(*bench, exit_code);
  ration::tools::add_bench_step(*bench, exit_code);
  ration::tools::add_inspect(app, exit_code);
  ration::tools::add_verify(app, exit_code);
  ration::tools::add_merge(app);
  ration::tools::add_diff(app, exit_code);
  ration::tools::add_reshard(app);
  ration::tools::add_import(app);
  ration::tools::add_postmortem(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(e.what(), kBadUsage);
  } catch (const ration::InvalidArgument& e) {
    return fail(e.what(), kBadUsage);
  } catch (const std::exception& e) {
    return fail(e.what(), kFault);
  }
  return exit_code;
}
