#pragma once

#include <string>

namespace bench {

struct Options {
  std::string model = "convnet";
  /// Counted steps of each kind.
  int steps = 30;
  /// One process without a process group.
  bool is_alone = false;
};

struct ParsedOptions {
  Options options;
  /// The program has nothing more to do than to exit with `exit_code` (--help, a wrong option).
  bool is_done = false;
  int exit_code = 0;
};

ParsedOptions parse_options(int argc, char** argv);

}  // namespace bench
