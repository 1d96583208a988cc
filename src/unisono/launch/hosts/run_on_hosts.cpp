#include "unisono/launch/hosts/run_on_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/random_hex.h"
#include "unisono/launch/hosts/host_list.h"
#include "unisono/launch/hosts/hosts_run.h"
#include "unisono/launch/hosts/messages.h"
#include "unisono/launch/hosts/serve_uplink.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/rendezvous/roster/node_id.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::launch::hosts {
namespace {

std::string own_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw system_error("can't find this program's own file", error.value());
  }
  return path.string();
}

std::string current_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  if (error) {
    throw system_error("the folder that this was called in is gone", error.value());
  }
  return path.string();
}

// For any user's shell.
std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char letter : word) {
    result += letter == '\'' ? "'\\''" : std::string(1, letter);
  }
  return result + "'";
}

// "me@alpha" is alpha to others.
std::string address_of(const Host& host) {
  return host.name.substr(host.name.rfind('@') + 1);
}

bool is_loopback(const std::string& name) {
  return net::is_this_machine(name) && net::resolve(name, 0).front().is_loopback();
}

// What leads to the first host from all of them.
std::string meeting_address(const HostsRequest& request) {
  if (!request.master_addr.empty()) {
    return request.master_addr;
  }
  const auto leads_here = [](const Host& host) { return is_loopback(address_of(host)); };
  const bool are_all_here = std::ranges::all_of(request.hosts, leads_here);
  const Host& first = request.hosts.front();
  return leads_here(first) && !are_all_here ? rendezvous::host_name() : address_of(first);
}

// Below the ports that kernels give out. Two jobs seldom have the same.
std::uint16_t random_port() {
  std::random_device device;
  return std::uniform_int_distribution<std::uint16_t>(20'000, 31'999)(device);
}

// The settings of this library and of its launcher, and what the user names; but no secret.
std::vector<std::string> variables(const HostsRequest& request) {
  const Environment environment = process_environment();
  std::vector<std::string> result;
  for (const char* const prefix : {"UNISONO_", "PET_", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"}) {
    for (const std::string& name : process_variables(prefix)) {
      if (!name.starts_with("UNISONO_SECRET")) {
        result.push_back(name + "=" + environment(name.c_str()).value_or(""));
      }
    }
  }
  result.insert(result.end(), request.variables.begin(), request.variables.end());
  return result;
}

// The command line of each host's launcher, but for what differs; later options take precedence.
std::vector<std::string> common_arguments(const HostsRequest& request, bool are_several) {
  std::vector<std::string> arguments = request.command;
  arguments.insert(arguments.end(),
                   {"--prefix", "--nnodes", fmt::format("{}", request.hosts.size())});
  if (are_several) {
    const std::uint16_t port = request.master_port == 0 ? random_port() : request.master_port;
    arguments.insert(
        arguments.end(),
        {"--master-addr", meeting_address(request), "--master-port", fmt::format("{}", port)});
  }
  return arguments;
}

Begin make_begin(const HostsRequest& request) {
  constexpr std::size_t kSecretBytes = 32;
  const Config config = read_config(process_environment());
  const std::string secret = rendezvous::is_secret_given(config)
                                 ? rendezvous::find_secret(config, request.hosts.front().name)
                                 : random_hex(kSecretBytes);
  return {.secret = secret,
          .directory = current_directory(),
          .variables = variables(request),
          .arguments = common_arguments(request, request.hosts.size() > 1)};
}

}  // namespace

int run_on_hosts(const HostsRequest& request) {
  const std::string self = own_path();
  const std::string command = quoted(self) + " " + kHostArgument;
  const std::vector<std::string>& shell = request.remote_shell;
  const Begin common = make_begin(request);
  HostsRun run(request);
  for (std::size_t i = 0; i < request.hosts.size(); ++i) {
    const Host& host = request.hosts[i];
    Begin begin = common;
    begin.label = host.name;
    begin.arguments.insert(begin.arguments.end(), {"--node-rank", fmt::format("{}", i)});
    if (host.n_workers) {
      begin.arguments.insert(begin.arguments.end(),
                             {"--nproc-per-node", fmt::format("{}", *host.n_workers)});
    }
    begin.arguments.emplace_back("--");
    begin.arguments.insert(begin.arguments.end(), request.program.begin(), request.program.end());
    const bool is_remote = !shell.empty() || !net::is_this_machine(address_of(host));
    if (is_remote) {
      std::vector<std::string> argv = shell.empty() ? std::vector<std::string>{"ssh"} : shell;
      argv.insert(argv.end(), {host.name, command});
      run.start(
          find_program({.argv = argv, .no_python = true}, process_environment()), begin, true);
    } else {
      run.start({.path = self, .argv = {self, kHostArgument}}, begin, false);
    }
  }
  return run.finish();
}

}  // namespace unisono::launch::hosts
