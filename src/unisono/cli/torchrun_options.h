#pragma once

#include <string>
#include <vector>

#include "unisono/launch/run.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Options that torchrun has and that say little or nothing on one node.
struct TorchrunArguments {
  std::string n_nodes = "1";
  int node_rank = 0;
  bool standalone = false;
  std::string rendezvous_backend = "static";
  std::string rendezvous_endpoint;
  std::string redirects = "0";
  std::string tee = "0";
  std::string shown_ranks;
  std::vector<std::string> ignored = {};  ///< As --help names them.
};

/// Adds them, under torchrun's names in both spellings, to the options of `unisono run`. What they
/// refer to must outlive `app`'s parsing.
void add_torchrun_options(CLI::App& app, TorchrunArguments& arguments, launch::RunOptions& options);

/// Carries over into `options` what they say.
///
/// Throws Error(kInvalidArgument) for what takes several nodes, or a service that is not here, and
/// for local ranks beyond options.n_workers.
void apply(const TorchrunArguments& arguments, launch::RunOptions& options);

}  // namespace unisono::cli
