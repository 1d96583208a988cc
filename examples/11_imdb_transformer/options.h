#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <CLI/App.hpp>

namespace imdb {

/// What both programs on reviews have: this one and that of 12_imdb_hybrid.
struct Options {
  std::string data = "../shared/data";
  bool is_generated = false;  // made-up reviews instead
  std::int64_t limit = 0;     // of training and test reviews; 0: all
  std::size_t max_length = 256;
  int nlayers = 2;
  std::size_t ntokens = 20'000;
  int d_model = 64;
  int d_hid = 128;
  int n_head = 4;
  double dropout = 0.3;
  int chunks = 1;
  int batch_size = 32;  // of each replica of the model
  int epochs = 4;
  double lr = 3e-3;
  std::int64_t seed = 1;
  std::string model_path;  // none: the model is not saved
  bool loads_model = false;
};

void add_options(CLI::App& app, Options& options);

/// Throws unisono::Error for options that don't fit together.
void check(const Options& options);

}  // namespace imdb
