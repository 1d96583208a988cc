#pragma once

#include <string>
#include <vector>

#include "unisono/launch/run.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Options under torchrun's names that say nothing about nodes, or nothing at all.
struct TorchrunArguments {
  std::string redirects = "0";
  std::string tee = "0";
  std::string shown_ranks;
  std::string numa_binding;
  std::vector<std::string> ignored = {};  ///< As --help names them.
};

/// Adds them, under torchrun's names in both spellings, to the options of `unisono run`. What they
/// refer to must outlive `app`'s parsing.
void add_torchrun_options(CLI::App& app, TorchrunArguments& arguments, launch::RunOptions& options);

/// Carries over into `options` what they say.
///
/// Throws Error(kInvalidArgument) for local ranks beyond options.n_workers.
void apply(const TorchrunArguments& arguments, launch::RunOptions& options);

/// Gives the options that torchrun has, too, the environment's PET_NNODES and the like as defaults,
/// and two their TORCHELASTIC_*, as there.
void read_defaults_from_environment(CLI::App& app);

}  // namespace unisono::cli
