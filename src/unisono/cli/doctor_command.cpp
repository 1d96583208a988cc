#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/doctor/checks.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/cli/parse.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::cli {
namespace {

struct DoctorArguments {
  double timeout_s = 30;
  bool shows_all = false;
  bool is_json = false;
};

// Returns the exit code.
int print(const doctor::Report& report, bool shows_all, bool is_json) {
  const std::string text =
      is_json ? doctor::to_json(report) + "\n" : doctor::to_table(report, shows_all);
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return report.count(doctor::kProblem) > 0 ? 1 : 0;
}

// Returns the report of this process alone. The rank may be unreadable if the process was started
// incorrectly.
doctor::Report report_alone(const doctor::JobPlace& place, doctor::LocalReport local) {
  const int rank = place.launch_info.rank;
  const std::vector<int> ranks = rank < 0 ? std::vector<int>() : std::vector<int>{rank};
  doctor::Report report{
      .nodes = {{.name = rendezvous::host_name(), .ranks = ranks}}, .rows = {}, .links = {}};
  if (place.has_peers()) {
    report.nodes[0].name += fmt::format(", rank {}", rank);
  }
  doctor::append(local.of_process, std::move(local.of_node));
  for (doctor::Finding& finding : local.of_process) {
    report.rows.push_back({.finding = std::move(finding), .ranks = ranks});
  }
  doctor::sort_rows(report.rows);
  return report;
}

// Moves the finding with the same error, which has the remedy, to the front, or adds a finding.
void put_first(doctor::Findings& findings, const std::string& error) {
  const auto same =
      std::find_if(findings.begin(), findings.end(), [&](const doctor::Finding& finding) {
        return finding.text == error;
      });
  if (same != findings.end()) {
    std::rotate(findings.begin(), same, std::next(same));
    return;
  }
  const std::string advice = "see the other rows here, and the output of the other ranks";
  findings.insert(findings.begin(), doctor::problem(error, advice, "job").front());
}

bool has_bad_settings(const Environment& environment) {
  try {
    (void)read_config(environment);
    return false;
  } catch (const Error&) {
    return true;
  }
}

int examine(const DoctorArguments& arguments) {
  const doctor::Machine machine = doctor::read_machine(process_environment());
  doctor::LocalReport local = doctor::run_checks(machine);
  if (machine.place.has_peers() && !has_bad_settings(machine.environment)) {
    try {
      const std::optional<doctor::Report> report =
          doctor::check_job(machine.environment,
                            local,
                            std::chrono::milliseconds(std::llround(arguments.timeout_s * 1000)));
      return report ? print(*report, arguments.shows_all, arguments.is_json) : 0;
    } catch (const Error& error) {
      put_first(local.of_process, error.what());
    }
  }
  return print(report_alone(machine.place, std::move(local)), true, arguments.is_json);
}

}  // namespace

int doctor_command(const CommandLine& line) {
  constexpr double kMaxTimeoutSeconds = 1e6;
  CLI::App app(
      "Checks this machine and the environment for causes that keep a job from starting, or make "
      "it slow.\nIn a job (unisono run -n N unisono doctor; srun; mpirun) all its nodes, and the "
      "links between them.\nExit code 1 when there is a problem.",
      "unisono doctor");
  DoctorArguments arguments;
  app.add_flag("--json", arguments.is_json, "Print one JSON document instead of the table");
  app.add_flag("--all", arguments.shows_all, "In a job, also show checks that passed, and notes");
  app.add_option("--timeout", arguments.timeout_s, "Seconds to wait for the other ranks")
      ->capture_default_str()
      ->check(CLI::Range(0.001, kMaxTimeoutSeconds));
  add_examples(app,
               {"unisono doctor",
                "unisono run -n 4 unisono doctor --all",
                "unisono doctor --json > report.json"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  return examine(arguments);
}

}  // namespace unisono::cli
