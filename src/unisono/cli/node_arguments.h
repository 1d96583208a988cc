#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/run.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// What the command line says about the job's nodes, under torchrun's names.
struct NodeArguments {
  std::string n_nodes = "1";
  std::optional<int> node_rank = {};
  bool is_standalone = false;
  std::string backend = {};
  std::string endpoint = {};
  std::string settings = {};  ///< Those of --rdzv-conf.
  int max_spares = std::numeric_limits<int>::max();
};

/// Adds them to the options of `unisono run`. `arguments` must outlive `app`'s parsing.
void add_node_options(CLI::App& app, NodeArguments& arguments);

/// Carries over into `options` what they say: a place to meet, and where there are to be several
/// nodes, which. Adds to `ignored` what says nothing.
///
/// Throws Error(kInvalidArgument), with the option's name, for what is no value of it, and for
/// those that exclude each other.
void apply(const NodeArguments& arguments,
           launch::RunOptions& options,
           std::vector<std::string>& ignored);

/// "8", "2:4" as --nnodes has them.
struct NodeCount {
  int min = 1;
  int max = 1;

  friend bool operator==(const NodeCount&, const NodeCount&) = default;
};

/// Nothing where the text is none.
[[nodiscard]] std::optional<NodeCount> parse_node_count(const std::string& text);

}  // namespace unisono::cli
