#include "unisono/cli/run_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/CLI.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/launch/binding/share_cores.h"
#include "unisono/launch/output/stream_selection.h"

namespace unisono::cli {
namespace {

using launch::BindTo;

const std::map<std::string, BindTo> kBindings{{"none", BindTo::kNone},
                                              {"core", BindTo::kCore},
                                              {"numa", BindTo::kNuma},
                                              {"socket", BindTo::kSocket}};
const std::map<std::string, BindTo> kNumaBindings{
    {"node", BindTo::kNuma}, {"socket", BindTo::kSocket}, {"exclusive", BindTo::kCore}};

}  // namespace

void add_binding_options(CLI::App& app, launch::RunOptions& options) {
  app.add_option_function<std::string>(
         "--bind-to,--bind_to",
         [&options](const std::string& name) { options.bind_to = kBindings.at(name); },
         "Bind each rank to cores of its own, or to all cores of their NUMA nodes or sockets "
         "(default: core, if each rank gets a core that no other job uses)")
      ->check(CLI::IsMember(kBindings))
      ->type_name("none|core|numa|socket");
  app.add_flag("--report-bindings,--report_bindings",
               options.reports_bindings,
               "Report the cores, the NUMA node and OMP_NUM_THREADS of each rank");
}

void apply_numa_binding(const std::string& name, launch::RunOptions& options) {
  const auto meaning = kNumaBindings.find(name);
  if (meaning != kNumaBindings.end()) {
    options.bind_to = options.bind_to.value_or(meaning->second);
  } else if (!name.empty()) {
    options.ignored_options.push_back(fmt::format("--numa-binding {}", name));
  }
}

namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "run: " + problem);
}

std::vector<launch::hosts::Host> read_hosts(const HostArguments& arguments) {
  const bool is_file = arguments.hosts.empty();
  if (!is_file && !arguments.hostfile.empty()) {
    refuse("--hosts and --hostfile exclude each other");
  }
  try {
    return is_file ? launch::hosts::read_hostfile(arguments.hostfile)
                   : launch::hosts::parse_hosts(arguments.hosts);
  } catch (const Error& error) {
    throw Error(error.code(),
                is_file ? fmt::format("run: --hostfile: {}", error.what())
                        : fmt::format("run: --hosts {}: {}", arguments.hosts, error.what()));
  }
}

void check_others(const CLI::App& app, const std::vector<launch::hosts::Host>& hosts) {
  constexpr std::array kSaidByHosts{
      "--nnodes", "--node-rank", "--rdzv-backend", "--rdzv-endpoint", "--standalone", "--spares"};
  for (const char* const name : kSaidByHosts) {
    if (app.count(name) > 0) {
      refuse(
          fmt::format("{} and --hosts exclude each other: --hosts starts a launcher on each host, "
                      "and sets its node rank",
                      name));
    }
  }
  if (const std::optional<int>& n_workers = hosts.front().n_workers;
      app.count("--nproc-per-node") > 0 && n_workers) {
    refuse(
        fmt::format("-n is the number of ranks on each host, and --hosts gives {} of {}: leave "
                    "one of them out",
                    *n_workers,
                    hosts.front().name));
  }
}

// Assigns the numbers of SLURM_TASKS_PER_NODE to the hosts, in order.
void give_counts(const std::vector<int>& counts, std::vector<launch::hosts::Host>& hosts) {
  if (counts.size() != hosts.size()) {
    refuse(
        fmt::format("-n has the ranks of {} hosts, and --hosts names {}: give the list of the "
                    "nodes that SLURM_TASKS_PER_NODE describes",
                    counts.size(),
                    hosts.size()));
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].n_workers = counts[i];
  }
}

std::string with_value(const std::string& variable) {
  if (variable.find('=') != std::string::npos) {
    return variable;
  }
  const auto value = process_environment()(variable.c_str());
  if (!value) {
    refuse(fmt::format(
        "-x {}: this variable is not set here; -x {}=VALUE gives it one", variable, variable));
  }
  return variable + "=" + *value;
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> result;
  for (std::string word; words >> word;) {
    result.push_back(word);
  }
  return result;
}

}  // namespace

void add_host_options(CLI::App& app, HostArguments& arguments) {
  app.add_option("-H,--hosts,--host",
                 arguments.hosts,
                 "Start the job on these machines, by ssh: alpha:4,beta:4 for 4 ranks on each, or "
                 "alpha,node[1-3] with -n ranks on each");
  app.add_option("--hostfile,--machinefile",
                 arguments.hostfile,
                 "The same from a file, a host a line: alpha slots=4, or alpha:4")
      ->type_name("FILE");
  app.add_option("--rsh",
                 arguments.remote_shell,
                 "Called as PROGRAM HOST COMMAND in place of ssh, for all hosts")
      ->type_name("PROGRAM");
  app.add_option("-x,--export",
                 arguments.exported,
                 "Environment variable to pass to the hosts: NAME, or NAME=VALUE; may be "
                 "given several times")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

launch::hosts::HostsRequest make_request(const CLI::App& app,
                                         const HostArguments& arguments,
                                         const launch::RunOptions& options,
                                         const std::optional<std::vector<int>>& counts,
                                         std::vector<std::string> typed) {
  launch::hosts::HostsRequest request{.hosts = read_hosts(arguments),
                                      .remote_shell = split_words(arguments.remote_shell),
                                      .command = std::move(typed),
                                      .program = options.program.argv,
                                      .master_addr = options.master_addr,
                                      .master_port = options.master_port,
                                      .grace = options.grace,
                                      .is_json = options.is_json,
                                      .max_restarts = options.max_restarts};
  check_others(app, request.hosts);
  if (counts) {
    give_counts(*counts, request.hosts);
  }
  std::ranges::transform(arguments.exported, std::back_inserter(request.variables), with_value);
  return request;
}

namespace {

constexpr std::array kIgnoredWithValue{"monitor-interval",
                                       "start-method",
                                       "event-log-handler",
                                       "duplicate-stdout-filters",
                                       "duplicate-stderr-filters",
                                       "local-addr",
                                       "logs-specs",
                                       "signals-to-handle"};
constexpr int kMaxSeconds = 1'000'000;

std::string underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// Returns both spellings: "--rdzv-id,--rdzv_id".
std::string both(const std::string& name) {
  return fmt::format("--{},--{}", name, underscored(name));
}

// Adds the name and the value of the option to an error.
void explain(const char* name, const std::string& value, const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("run: --{} {}: {}", name, value, error.what()));
  }
}

}  // namespace

void add_torchrun_options(CLI::App& app,
                          TorchrunArguments& arguments,
                          launch::RunOptions& options) {
  app.add_option(both("rdzv-id"), options.run_id, "Name of the job (default: a random one)");
  app.add_option("--role", options.role, "ROLE_NAME of the ranks (default \"default\")");
  constexpr const char* kStreams = "0|1|2|3|RANK:STREAMS,...";
  app.add_option(
         "-r,--redirects",
         arguments.redirects,
         "Streams that go into the files of --log-dir only: 1 stdout, 2 stderr, 3 both; 0:3,1:2 "
         "for some local ranks")
      ->type_name(kStreams);
  app.add_option("-t,--tee", arguments.tee, "Streams that also go there; as --redirects")
      ->type_name(kStreams);
  app.add_option(both("local-ranks-filter"),
                 arguments.shown_ranks,
                 "Local ranks whose output is shown: 0,3 (default: all)");
  app.add_option(both("log-line-prefix-template"),
                 options.prefix_template,
                 "Format of --prefix, as [${role_name}${local_rank}|${rank}]: ")
      ->type_name("TEMPLATE");
  app.add_option(both("numa-binding"),
                 arguments.numa_binding,
                 "--bind-to with torchrun's values: node is numa, exclusive is core")
      ->check(CLI::IsMember({"node", "socket", "exclusive", "core-complex"}))
      ->type_name("node|socket|exclusive|core-complex");
  app.add_option_function<int>(
         both("shutdown-timeout"),
         [&options](int seconds) { options.grace = std::chrono::seconds(seconds); },
         "--grace under torchrun's name")
      ->check(CLI::Range(0, kMaxSeconds));
  for (const char* name : kIgnoredWithValue) {
    app.add_option_function<std::string>(both(name),
                                         [&arguments, name](const std::string& /*value*/) {
                                           arguments.ignored.push_back(fmt::format("--{}", name));
                                         })
        ->group("");
  }
  app.add_flag_callback(both("virtual-local-rank"),
                        [&arguments] { arguments.ignored.emplace_back("--virtual-local-rank"); })
      ->group("");
}

void apply(const TorchrunArguments& arguments, launch::RunOptions& options) {
  explain("redirects", arguments.redirects, [&] {
    options.redirects = launch::parse_streams(arguments.redirects, options.n_workers);
  });
  explain("tee", arguments.tee, [&] {
    options.tee = launch::parse_streams(arguments.tee, options.n_workers);
  });
  explain("local-ranks-filter", arguments.shown_ranks, [&] {
    options.shown_ranks = launch::parse_local_ranks(arguments.shown_ranks, options.n_workers);
  });
  options.prefix = options.prefix || !options.prefix_template.empty();
  options.ignored_options = arguments.ignored;
  apply_numa_binding(arguments.numa_binding, options);
}

void read_defaults_from_environment(CLI::App& app) {
  constexpr std::array kNotTorchruns{"help",
                                     "prefix",
                                     "grace",
                                     "stall-timeout",
                                     "spares",
                                     "collapse",
                                     "log-format",
                                     "hosts",
                                     "hostfile",
                                     "rsh",
                                     "export",
                                     "verbose",
                                     "allow-plain-clients",
                                     "backend-alias",
                                     "bind-to",
                                     "report-bindings"};
  for (CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (names.empty() || std::ranges::find(kNotTorchruns, names.front()) != kNotTorchruns.end()) {
      continue;
    }
    std::string variable = "PET_" + underscored(names.front());
    std::ranges::transform(variable, variable.begin(), [](unsigned char letter) {
      return static_cast<char>(std::toupper(letter));
    });
    option->envname(variable);
  }
  app.get_option("--log-line-prefix-template")->envname("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  app.get_option("--signals-to-handle")->envname("TORCHELASTIC_SIGNALS_TO_HANDLE");
}

}  // namespace unisono::cli
