#pragma once

#include <string>

namespace bench {

struct Options {
  std::string model = "cnn";
  int batch = 0;   ///< Samples of each rank's step, or of each shard's; by default the model's own.
  int steps = 30;  ///< Counted steps of each kind.
  bool no_sync = false;
  bool is_alone = false;  ///< One process without a process group.
  int replicas = 0;       ///< Alone, with DataParallel on so many threads; 0: without.
  int accumulate = 1;     ///< Alone, so many batches make a step.
  /// Alone: says "trained", and looks at its memory when standard input has a character; ends when
  /// that ends.
  bool is_held = false;
  bool beside_plain = false;
  std::string zero =
      "no";               ///< Divided between the ranks: "no", "step", or "overlap" with backward.
  std::string json_file;  ///< Empty: standard output.
  int logical_ranks = 0;
  bool hash = false;
  std::string hook = "none";  ///< Of hook_names().
};

struct ParsedOptions {
  Options options;
  /// The program has nothing more to do than to exit with `exit_code` (--help, a wrong option).
  bool is_done = false;
  int exit_code = 0;
};

ParsedOptions parse_options(int argc, char** argv);

}  // namespace bench
