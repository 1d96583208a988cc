#pragma once

#include <cstdint>
#include <string>

namespace mnist {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string model_path = "mnist.pt";
  int epochs = 3;
  int batch_size = 64;  // of each rank
  int test_batch_size = 250;
  double lr = 1.0;
  double gamma = 0.7;
  std::int64_t seed = 1;
  int workers = 1;
  std::int64_t limit = 0;      // of training and test images; 0: all
  std::string checkpoint_dir;  // none: no checkpoints
  int checkpoint_every = 100;  // steps
  bool resumes = false;
  std::string json_file;    // none: no lines of JSON
  std::string tensorboard;  // folder of event files; none: no such files
  bool is_verbose = false;
};

/// Ends the program after --help, and with exit code 2 where the command line is wrong.
[[nodiscard]] Options parse_options(int argc, char** argv);

}  // namespace mnist
