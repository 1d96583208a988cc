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

/// Options of the command line about the nodes of the job, under torchrun's names.
struct NodeArguments {
  std::string n_nodes = "1";
  std::optional<int> node_rank = {};
  bool is_standalone = false;
  std::string backend = {};
  std::string endpoint = {};
  std::string settings = {};  ///< Value of --rdzv-conf.
  int max_spares = std::numeric_limits<int>::max();
};

/// Adds the options to `unisono run`. `arguments` must outlive the parsing of `app`.
void add_node_options(CLI::App& app, NodeArguments& arguments);

/// Transfers the arguments into `options`: the rendezvous, and the settings of several nodes. Adds
/// arguments without an effect to `ignored`.
///
/// Throws Error(kInvalidArgument), with the name of the option, for an invalid value and for
/// options that exclude each other.
void apply(const NodeArguments& arguments,
           launch::RunOptions& options,
           std::vector<std::string>& ignored);

/// Value of --nnodes: "8", "2:4".
struct NodeCount {
  int min = 1;
  int max = 1;

  friend bool operator==(const NodeCount&, const NodeCount&) = default;
};

/// Returns std::nullopt for an invalid text.
[[nodiscard]] std::optional<NodeCount> parse_node_count(const std::string& text);

}  // namespace unisono::cli
