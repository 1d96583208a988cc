#include "options.h"

#include <CLI/CLI.hpp>

namespace bench {
namespace {

constexpr int kUsageError = 2;

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  CLI::App app("Measures training steps and prints one line of JSON: unisono run -n 2 train_step");
  app.add_option("--model", options.model, "What is trained")
      ->check(CLI::IsMember({"convnet", "mlp"}))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps to measure, with and without synchronization")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_flag("--alone", options.is_alone, "One process, without a process group");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.is_done = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
  }
  return parsed;
}

}  // namespace bench
