#include "options.h"

#include <cstdlib>

#include <CLI/CLI.hpp>

Options parse_options(int argc, char** argv) {
  Options args;
  CLI::App app("Trains a small speaker recognizer, by workers of its own");
  CLI::Option* const distributed =
      app.add_flag("--distributed", args.distributed, "Several workers");
  app.add_option("--nprocs", args.nprocs, "How many")
      ->check(CLI::PositiveNumber)
      ->needs(distributed);
  app.add_option("--port", args.port, "Port where they meet; 0: any")->check(CLI::Range(0, 65535));
  app.add_option(
         "--gpu", args.gpu, "Number of the only worker; with --distributed each has its own")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--syncBN", args.sync_bn, "Batch statistics of all workers together");
  app.add_option("--batch_size,--batch-size", args.batch_size, "Recordings a step and worker")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--nDataLoaderThread", args.n_data_loader_threads, "Threads that load them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max_epoch", args.max_epoch, "Passes over the recordings")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", args.lr, "Learning rate of Adam")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--train_path", args.train_path, "Folder that make_lists.py has filled")
      ->capture_default_str();
  app.add_option("--json-file", args.json_file, "Append a line of JSON for each step to a file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));  // NOLINT(concurrency-mt-unsafe): there is one thread yet
  }
  return args;
}
