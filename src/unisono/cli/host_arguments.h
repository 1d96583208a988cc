#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/run.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// What the command line says about machines on which launchers are to be started.
struct HostArguments {
  std::string hosts = {};
  std::string hostfile = {};
  std::string remote_shell = {};
  std::vector<std::string> exported = {};  ///< "NAME" or "NAME=value".

  [[nodiscard]] bool are_given() const { return !hosts.empty() || !hostfile.empty(); }
};

/// Adds them to the options of `unisono run`. `arguments` must outlive `app`'s parsing.
void add_host_options(CLI::App& app, HostArguments& arguments);

/// The job that the whole command line asks for. `counts` is the value of -n where it is a list,
/// `typed` the part of the command line in front of the program.
///
/// Throws Error(kInvalidArgument) for what is no list of hosts, no variable that is set, and for
/// options that --hosts leaves no room for; Error(kSystem) for a file that can't be read.
[[nodiscard]] launch::hosts::HostsRequest make_request(
    const CLI::App& app,
    const HostArguments& arguments,
    const launch::RunOptions& options,
    const std::optional<std::vector<int>>& counts,
    std::vector<std::string> typed);

}  // namespace unisono::cli
