// `ration postmortem DIR`: reads what the ranks of a failed job left behind, and says which of them
// diverged or stopped, at which operation.

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "postmortem/diagnosis.hpp"

namespace ration::tools {
namespace {

struct Options {
  std::string folder;
  bool json = false;
};

void print(const PastJob& job, const Diagnosis& diagnosis) {
  if (!job.ranks.empty()) {
    fmt::print("{} of {} ranks left a record\n", job.ranks.size(), job.world);
  }
  for (const std::string& file : job.foreign) fmt::print("{}: of another job, left out\n", file);
  for (const Finding& finding : diagnosis.findings) {
    fmt::print("{}: {}\n", name_of(finding.kind), finding.text);
  }
  for (const std::string& line : diagnosis.waiting) fmt::print("when it ended: {}\n", line);
  if (diagnosis.findings.empty()) fmt::print("no fault found\n");
}

nlohmann::json as_json(const PastJob& job, const Diagnosis& diagnosis) {
  auto findings = nlohmann::json::array();
  for (const Finding& finding : diagnosis.findings) {
    findings.push_back({{"kind", name_of(finding.kind)},
                        {"ranks", finding.ranks},
                        {"operation", finding.operation},
                        {"text", finding.text}});
  }
  auto ranks = nlohmann::json::array();
  for (const PastRank& rank : job.ranks) {
    ranks.push_back({{"rank", rank.rank}, {"host", rank.host}, {"error", rank.error}});
  }
  return {
      {"world", job.world},     {"ranks", std::move(ranks)},       {"missing", job.missing},
      {"foreign", job.foreign}, {"findings", std::move(findings)}, {"waiting", diagnosis.waiting}};
}

int run(const Options& options) {
  const PastJob job = read_job(options.folder);
  const Diagnosis diagnosis = diagnose(job);
  if (options.json) {
    fmt::print(
        "{}\n",
        as_json(job, diagnosis).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print(job, diagnosis);
  }
  return diagnosis.findings.empty() ? 0 : 1;
}

}  // namespace

void add_postmortem(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "postmortem", "Say which rank of a failed job diverged or stopped, and at which operation");
  auto options = std::make_shared<Options>();
  command
      ->add_option("DIR", options->folder,
                   "Folder with the ranks' files, from all hosts (RATION_POSTMORTEM_DIR of the "
                   "job; by default ration-postmortem)")
      ->required();
  command->add_flag("--json", options->json, "JSON instead of sentences");
  command->footer("Exit code: 0 no fault found, 1 a fault was found, 2 bad usage");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace ration::tools
