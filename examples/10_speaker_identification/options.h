#pragma once

#include <string>

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

/// Ends the program after --help, and with exit code 2 where the command line is wrong.
[[nodiscard]] Options parse_options(int argc, char** argv);
