#include "unisono/rendezvous/resolve_rendezvous.h"

#include <fmt/format.h>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/setting_checks.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/builtin_methods.h"

namespace unisono::rendezvous {
namespace {

// Parses tcp://HOST:PORT?rank=R&world_size=N. Rank 0 serves the store at that address.
LaunchInfo read_tcp(const InitMethod& method, const GivenRank& given) {
  std::string problems = net::describe_host_fault(method.host);
  if (!method.path.empty()) {
    problems +=
        fmt::format("{}\"{}\" follows the address", problems.empty() ? "" : "; ", method.path);
  }
  const RankRequest wanted = read_rank_request(method, given, true, problems);
  return {.master_addr = method.host,
          .master_port = method.port.value_or(kDefaultMasterPort),
          .rank = wanted.rank.value_or(0),
          .world_size = wanted.world_size};
}

// For methods without a discovery: env:// reads the launcher's variables, tcp:// reads the options
// of the method.
LaunchInfo read_launch_info(const InitMethod& method, const RendezvousRequest& request) {
  if (method.scheme == "tcp") {
    return read_tcp(method, request.given);
  }
  if (method.text != "env://") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": nothing may follow env://; rank and "
                            "world_size are options of the program or environment variables",
                            method.text));
  }
  return find_launch_info(request.environment, request.given.rank, request.given.world_size);
}

// Finds the launch info. A single error message contains all problems of settings and launcher
// variables.
LaunchInfo read_environment(const InitMethod& method,
                            const RendezvousRequest& request,
                            const ParsedConfig& settings) {
  std::string problems = settings.problems;
  LaunchInfo launch_info;
  try {
    launch_info = read_launch_info(method, request);
    launch_info.process_name = request.process_name;
  } catch (const Error& error) {
    problems += (problems.empty() ? "" : "; ") + std::string(error.what());
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, problems);
  }
  return launch_info;
}

void log_launcher(const base::Config& config, const LaunchInfo& launch_info) {
  if (launch_info.rank == 0 && !launch_info.launcher.empty()) {
    base::Logger(launch_info.process_name + " 0", config.log_level)
        .info(fmt::format("started by {}: {} {}s meet at {}{}",
                          launch_info.origin,
                          launch_info.world_size,
                          launch_info.process_name,
                          net::join_host_port(launch_info.master_addr, launch_info.master_port),
                          launch_info.secret.empty()
                              ? ""
                              : fmt::format("; their secret is in the launcher's key space ({})",
                                            to_string(launch_info.key_value_space.kind))));
  }
}

// A misspelled setting would have no effect, silently.
void warn_of_misspelled_settings(const base::Config& config, const LaunchInfo& launch_info) {
  if (launch_info.rank != 0) {
    return;
  }
  for (const std::string& name : process_variables("UNISONO_")) {
    if (const std::string similar = similar_setting(name); !similar.empty()) {
      base::Logger(launch_info.process_name + " 0", config.log_level)
          .warning(fmt::format(
              "{} is not a setting of Unisono, and has no effect; is {} meant?", name, similar));
    }
  }
}

}  // namespace

std::chrono::milliseconds choose_timeout(std::optional<std::chrono::milliseconds> chosen,
                                         const base::Config& config) {
  const std::chrono::milliseconds timeout = chosen.value_or(config.timeout);
  if (timeout <= std::chrono::milliseconds::zero()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_process_group: the timeout is {} ms", timeout.count()));
  }
  return timeout;
}

RendezvousInfo resolve_rendezvous(const RendezvousRequest& request) {
  const InitMethod method = parse_init_method(request.init_method);
  const Discovery discover = find_discovery(method);
  const ParsedConfig settings =
      request.settings ? *request.settings : parse_config(request.environment);
  RendezvousInfo info;
  info.config = settings.config;
  if (discover == nullptr) {
    info.discovered.launch_info = read_environment(method, request, settings);
  } else {
    settings.check();
  }
  info.timeout = choose_timeout(request.timeout, info.config);
  info.deadline = Deadline::after(info.timeout);
  if (discover == nullptr) {
    info.discovered.launch_info =
        publish_master_address(info.config, info.discovered.launch_info, info.deadline);
    log_launcher(info.config, info.discovered.launch_info);
  } else {
    info.discovered = discover({.method = method,
                                .given = request.given,
                                .config = info.config,
                                .environment = request.environment,
                                .deadline = info.deadline});
  }
  warn_of_misspelled_settings(info.config, info.discovered.launch_info);
  if (method.scheme != "env") {
    // Without the query, which differs between ranks.
    info.discovered.launch_info.place_source =
        "init_method " + method.text.substr(0, method.text.find('?'));
  }
  return info;
}

}  // namespace unisono::rendezvous
