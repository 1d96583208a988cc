#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <CLI/App.hpp>

namespace imdb {

/// Options of imdb_transformer, imdb_hybrid and the benchmark imdb_layout.
struct Options {
  std::string data = "../shared/data";
  bool is_generated = false;  // generated reviews instead
  std::int64_t limit = 0;     // number of training and of test reviews; 0: all
  std::size_t max_length = 256;
  int nlayers = 2;
  std::size_t ntokens = 20'000;
  int d_model = 64;
  int d_hid = 128;
  int n_head = 4;
  double dropout = 0.3;
  int chunks = 1;
  int batch_size = 32;  // for each replica of the model
  int epochs = 4;
  double lr = 3e-3;
  std::int64_t seed = 1;
  std::string model_path;  // empty: the model is not saved
  bool loads_model = false;
};

/// Adds the options for the sizes of the model and of a batch, and for the seed.
void add_model_options(CLI::App& app, Options& options);

/// Adds all options.
void add_options(CLI::App& app, Options& options);

/// Throws unisono::Error for options that contradict each other.
void check(const Options& options);

}  // namespace imdb
