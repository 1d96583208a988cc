#include "unisono/cli/host_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/launch/hosts/host_list.h"
#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/run.h"

namespace unisono::cli {
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
          fmt::format("{} and --hosts exclude each other: --hosts starts a launcher on each "
                      "host, and says which node it is",
                      name));
    }
  }
  if (const std::optional<int>& n_workers = hosts.front().n_workers;
      app.count("--nproc-per-node") > 0 && n_workers) {
    refuse(
        fmt::format("-n is the number of ranks on each host, and --hosts says {} of {}: leave "
                    "one of them out",
                    *n_workers,
                    hosts.front().name));
  }
}

// The numbers of SLURM_TASKS_PER_NODE, in the order of the hosts.
void give_counts(const std::vector<int>& counts, std::vector<launch::hosts::Host>& hosts) {
  if (counts.size() != hosts.size()) {
    refuse(
        fmt::format("-n has the ranks of {} hosts, and --hosts names {}: give the list of the "
                    "nodes that SLURM_TASKS_PER_NODE is about",
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
                 "Environment variable that goes along to the hosts: NAME, or NAME=VALUE; may be "
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

}  // namespace unisono::cli
