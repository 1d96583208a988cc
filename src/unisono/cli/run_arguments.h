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

/// Adds --bind-to and --report-bindings of the commands that start ranks. `options` must outlive
/// the parsing of `app`.
void add_binding_options(CLI::App& app, launch::RunOptions& options);

/// Translates torchrun's --numa-binding into `options`, unless --bind-to was given. An empty name
/// means that the option was not given. A name without a counterpart is reported as ignored.
void apply_numa_binding(const std::string& name, launch::RunOptions& options);

}  // namespace unisono::cli

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Options of the command line about the machines on which launchers are started.
struct HostArguments {
  std::string hosts = {};
  std::string hostfile = {};
  std::string remote_shell = {};
  std::vector<std::string> exported = {};  ///< "NAME" or "NAME=value".

  /// Returns true if the command line names hosts or a host file.
  [[nodiscard]] bool are_given() const { return !hosts.empty() || !hostfile.empty(); }
};

/// Adds the options to `unisono run`. `arguments` must outlive the parsing of `app`.
void add_host_options(CLI::App& app, HostArguments& arguments);

/// Returns the job that the command line describes. `counts` is the value of -n if that is a list.
/// `typed` is the part of the command line before the program.
///
/// Throws Error(kInvalidArgument) for an invalid list of hosts, an unset variable, and options that
/// --hosts excludes; Error(kSystem) for a file that cannot be read.
[[nodiscard]] launch::hosts::HostsRequest make_request(
    const CLI::App& app,
    const HostArguments& arguments,
    const launch::RunOptions& options,
    const std::optional<std::vector<int>>& counts,
    std::vector<std::string> typed);

}  // namespace unisono::cli

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Options under torchrun's names that are not about nodes, and options without an effect.
struct TorchrunArguments {
  std::string redirects = "0";
  std::string tee = "0";
  std::string shown_ranks;
  std::string numa_binding;
  std::vector<std::string> ignored = {};  ///< In the spelling of --help.
};

/// Adds the options, under torchrun's names in both spellings, to `unisono run`. `arguments` and
/// `options` must outlive the parsing of `app`.
void add_torchrun_options(CLI::App& app, TorchrunArguments& arguments, launch::RunOptions& options);

/// Transfers the arguments into `options`.
///
/// Throws Error(kInvalidArgument) for local ranks beyond options.n_workers.
void apply(const TorchrunArguments& arguments, launch::RunOptions& options);

/// Gives the options that torchrun also has their defaults from the environment, as torchrun does:
/// PET_NNODES and similar variables, and TORCHELASTIC_* for two options.
void read_defaults_from_environment(CLI::App& app);

}  // namespace unisono::cli
