#pragma once

#include <string>

namespace bench {

struct Options {
  std::string model = "cnn";
  int batch = 0;   ///< Samples per step of each rank or shard; by default the model's own number.
  int steps = 30;  ///< Number of counted steps of each kind.
  bool no_sync = false;
  bool is_alone = false;  ///< One process without a process group.
  int replicas = 0;    ///< With --alone: number of DataParallel threads; 0: without DataParallel.
  int accumulate = 1;  ///< With --alone: number of batches per step.
  /// With --alone: prints "trained", measures its memory when standard input has a character, and
  /// ends at the end of the input.
  bool is_held = false;
  bool beside_plain = false;
  std::string zero =
      "no";  ///< Division of the optimizer among ranks: "no", "step", or "overlap" with backward.
  std::string json_file;  ///< If empty, standard output.
  int logical_ranks = 0;
  bool hash = false;
  std::string hook = "none";  ///< A name of hook_names().
};

struct ParsedOptions {
  Options options;
  /// The program must exit at once with `exit_code` (--help, a wrong option).
  bool is_done = false;
  int exit_code = 0;
};

ParsedOptions parse_options(int argc, char** argv);

}  // namespace bench
