#pragma once

#include <string>

#include "../command_line.h"

struct Options {
  bool distributed = false;
  int port = 0;
  int gpu = 0;
  int nprocs = 1;  // 1 unless distributed
  bool sync_bn = false;
  int batch_size = 50;
  int n_data_loader_threads = 1;
  int epochs = 10;
  double lr = 1e-3;
  std::string train_path = "sounds";
  std::string json_file = {};
};

/// Ends the program after --help, and with exit code 2 after a wrong command line.
[[nodiscard]] inline Options parse_options(int argc, char** argv) {
  using examples::add_non_negative;
  using examples::add_positive;
  Options args;
  CLI::App app("Trains a small speaker recognizer in worker processes that the program starts");
  CLI::Option* const distributed =
      app.add_flag("--distributed", args.distributed, "Train with several workers");
  add_positive(app, "--nprocs", args.nprocs, "Number of workers")->needs(distributed);
  app.add_option("--port", args.port, "Port at which the workers connect; 0: any free port")
      ->check(CLI::Range(0, 65535));
  add_non_negative(app,
                   "--gpu",
                   args.gpu,
                   "Number of the only worker; with --distributed, workers have their ranks");
  app.add_flag("--sync-bn,--syncBN", args.sync_bn, "Share batch statistics between all workers");
  add_positive(app, "--batch-size", args.batch_size, "Recordings per step of each worker");
  add_non_negative(app,
                   "--workers,--nDataLoaderThread",
                   args.n_data_loader_threads,
                   "Threads per worker that load recordings");
  add_positive(app, "--epochs,--max-epoch", args.epochs, "Passes over the recordings");
  add_positive(app, "--lr", args.lr, "Learning rate of Adam");
  app.add_option("--train-path", args.train_path, "Folder that make_lists.py has filled")
      ->capture_default_str();
  app.add_option("--json-file", args.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  return args;
}
