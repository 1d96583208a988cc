#include "options.h"

#include <CLI/CLI.hpp>

#include "hooks.h"
#include "models.h"

namespace bench {
namespace {

constexpr int kUsageError = 2;

// Options of a single process without ranks.
void add_alone_options(CLI::App& app, Options& options) {
  CLI::Option* const alone =
      app.add_flag("--alone", options.is_alone, "One process, without a process group");
  CLI::Option* const threads =
      app.add_option("--data-parallel",
                     options.replicas,
                     "Alone, with DataParallel: number of threads, and of batches")
          ->check(CLI::Range(1, 256))
          ->needs(alone);
  app.add_option(
         "--accumulate", options.accumulate, "Alone: number of batches whose gradients a step uses")
      ->check(CLI::Range(1, 4096))
      ->needs(alone)
      ->excludes(threads);
  app.add_flag("--hold",
               options.is_held,
               "Alone: print a line after the training, measure memory after a line of standard "
               "input, stay until its end")
      ->needs(alone);
}

void add_rank_options(CLI::App& app, Options& options) {
  app.add_flag("--no-sync", options.no_sync, "Measure steps without synchronization alone")
      ->excludes("--alone");
  app.add_flag("--beside-plain",
               options.beside_plain,
               "Measure, in turn with them, steps of plain LibTorch on the same batches")
      ->excludes("--alone")
      ->excludes("--no-sync");
  app.add_option("--zero",
                 options.zero,
                 "Divide the optimizer between the ranks, and step after backward or in it")
      ->check(CLI::IsMember({"no", "step", "overlap"}))
      ->capture_default_str()
      ->excludes("--alone")
      ->excludes("--no-sync");
  app.add_option("--logical-ranks",
                 options.logical_ranks,
                 "Number of shards of a step, on any number of ranks")
      ->check(CLI::Range(1, 4096))
      ->excludes("--alone")
      ->excludes("--no-sync");
  app.add_option("--hook", options.hook, "Communication hook of the gradients")
      ->check(CLI::IsMember(hook_names()))
      ->capture_default_str()
      ->excludes("--alone")
      ->excludes("--logical-ranks");
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  CLI::App app(
      "Measures training steps with DistributedDataParallel: unisono run -n 2 ddp_bench --model "
      "mlp");
  app.add_option("--model", options.model, "Model to train")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Samples in a step of each rank, or in each shard")
      ->check(CLI::Range(1, 1 << 20))
      ->default_str("64; transformer: 32");
  app.add_option("--steps", options.steps, "Steps to measure, with and without synchronization")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add_alone_options(app, options);
  add_rank_options(app, options);
  app.add_option("--json", options.json_file, "Write the result into this file");
  app.add_flag("--hash",
               options.hash,
               "Train --steps steps and print the SHA-256 of the parameters on rank 0")
      ->excludes("--json")
      ->excludes("--hold")
      ->excludes("--no-sync")
      ->excludes("--beside-plain");
  try {
    app.parse(argc, argv);
    if (options.batch == 0) {
      options.batch = default_batch_size(options.model);
    }
  } catch (const CLI::ParseError& error) {
    parsed.is_done = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
  }
  return parsed;
}

}  // namespace bench
