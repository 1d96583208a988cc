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
#include "unisono/cli/doctor/examine.h"
#include "unisono/cli/doctor/examine_job.h"
#include "unisono/cli/doctor/examine_launcher.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/cli/parse.h"
#include "unisono/rendezvous/roster/node_id.h"

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
  return report.count(doctor::State::kProblem) > 0 ? 1 : 0;
}

// A process that nobody started as a rank is rank 0 of its own; one started badly may have none.
std::vector<int> ranks_here(const doctor::Place& place) {
  const int rank = place.launch_info ? place.launch_info->rank : 0;
  return rank < 0 ? std::vector<int>() : std::vector<int>{rank};
}

// What this process found alone.
doctor::Report report_here(doctor::Here here) {
  const std::vector<int> ranks = ranks_here(here.place);
  doctor::Findings findings = std::move(here.examination.of_process);
  doctor::append(findings, std::move(here.examination.of_node));
  doctor::Report report{
      .nodes = {{.name = rendezvous::host_name(), .ranks = ranks}}, .rows = {}, .links = {}};
  if (here.place.has_peers()) {
    report.nodes[0].name += ", rank " + doctor::describe_ranks(ranks);
  }
  for (doctor::Finding& finding : findings) {
    report.rows.push_back({.finding = std::move(finding), .ranks = ranks});
  }
  doctor::sort_rows(report.rows);
  return report;
}

// Where the examination has foreseen the error, with what it says is to be done.
void put_first(doctor::Findings& findings, const std::string& error) {
  const auto same =
      std::find_if(findings.begin(), findings.end(), [&](const doctor::Finding& finding) {
        return finding.text == error;
      });
  if (same != findings.end()) {
    std::rotate(findings.begin(), same, std::next(same));
    return;
  }
  findings.insert(findings.begin(),
                  {.state = doctor::State::kProblem,
                   .topic = "job",
                   .text = error,
                   .advice = "look at the other rows here, and at what the other ranks print"});
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
  const Environment environment = process_environment();
  doctor::Here here = doctor::examine_here(environment, "/");
  if (!here.place.has_peers() || has_bad_settings(environment)) {
    return print(report_here(std::move(here)), true, arguments.is_json);
  }
  try {
    const std::optional<doctor::Report> report =
        doctor::examine_job(environment,
                            here.examination,
                            std::chrono::milliseconds(std::llround(arguments.timeout_s * 1000)));
    return report ? print(*report, arguments.shows_all, arguments.is_json) : 0;
  } catch (const Error& error) {
    put_first(here.examination.of_process, error.what());
    return print(report_here(std::move(here)), true, arguments.is_json);
  }
}

}  // namespace

int doctor_command(const CommandLine& line) {
  constexpr double kMaxTimeoutSeconds = 1e6;
  CLI::App app(
      "Examines this machine and the environment: what keeps a job from starting, or makes it "
      "slow.\nIn a job (unisono run -n N unisono doctor; srun; mpirun) all its nodes, and the "
      "links between them.\nExit code 1 when there is a problem.",
      "unisono doctor");
  DoctorArguments arguments;
  app.add_flag("--json", arguments.is_json, "Print one JSON document instead of the table");
  app.add_flag(
      "--all", arguments.shows_all, "In a job, too, show what is good, and what is good to know");
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
