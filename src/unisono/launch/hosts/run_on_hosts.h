#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/launch/hosts/host_list.h"

namespace unisono::launch::hosts {

/// One command for a job on several machines.
struct HostsRequest {
  std::vector<Host> hosts;
  /// Called with a host and a command behind; empty: ssh, for hosts that are not this machine.
  std::vector<std::string> remote_shell = {};
  std::vector<std::string> variables = {};  ///< "NAME=value" for the ranks.
  std::vector<std::string> command = {};    ///< What `unisono` is to be called with, up to:
  std::vector<std::string> program = {};    ///< The ranks' program and its arguments.
  std::string master_addr = {};             ///< Empty: the first host.
  std::uint16_t master_port = 0;            ///< 0: a random one.
  std::chrono::milliseconds grace{};        ///< As RunOptions.
  bool is_json = false;                     ///< As RunOptions.
  int max_restarts = 0;                     ///< As RunOptions.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(2);
};

/// Starts a launcher on each host, shows what the ranks write, and waits for the job's end.
///
/// A launcher that is lost is started again as long as there are restarts; not the first host's,
/// which leads the job.
///
/// Returns what run() does on those hosts; 1, or the remote shell's exit code, where a host could
/// not be reached or is lost for good. Then, and when this process is killed, all other hosts end
/// their ranks.
///
/// Throws ProgramError where there is no such remote shell, Error for what else is missing here.
int run_on_hosts(const HostsRequest& request);

}  // namespace unisono::launch::hosts
