#include "options.h"

#include "../command_line.h"

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
  app.add_flag("--sync-bn,--syncBN", args.sync_bn, "Batch statistics of all workers together");
  app.add_option("--batch-size", args.batch_size, "Recordings a step and worker")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "--workers,--nDataLoaderThread", args.n_data_loader_threads, "Threads that load them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--epochs,--max-epoch", args.epochs, "Passes over the recordings")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", args.lr, "Learning rate of Adam")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--train-path", args.train_path, "Folder that make_lists.py has filled")
      ->capture_default_str();
  app.add_option("--json-file", args.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  return args;
}
