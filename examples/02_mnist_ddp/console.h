// Command line and output of the program.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>
#include <unisono/torch.h>

#include "../command_line.h"
#include "../mnist.h"
#include "../training.h"

namespace mnist {

struct Options {
  std::string data = examples::kFashionMnist;
  std::string model_path = "mnist.pt";
  int epochs = 3;
  int batch_size = 64;
  int test_batch_size = 250;
  double lr = 1.0;
  double gamma = 0.7;
  std::int64_t seed = 1;
  int workers = 1;
  std::int64_t limit = 0;
  std::string checkpoint_dir;
  int checkpoint_every = 100;
  bool resumes = false;
  std::string json_file;
  std::string tensorboard;
  bool is_verbose = false;
};

/// Ends the program after --help, and with exit code 2 after a wrong command line.
[[nodiscard]] inline Options parse_options(int argc, char** argv) {
  using examples::add_non_negative;
  using examples::add_positive;
  Options options;
  CLI::App app(
      "Trains a convnet on MNIST or Fashion-MNIST, on as many ranks as it is started on: "
      "unisono run -n 2 mnist");
  app.add_option("--data", options.data, "Folder with the four IDX files")->capture_default_str();
  app.add_option("--model-path,--save",
                 options.model_path,
                 "File to which rank 0 saves the model; '' for none")
      ->capture_default_str();
  add_positive(app, "--epochs", options.epochs, "Passes over the training images");
  add_positive(app, "--batch-size", options.batch_size, "Images per step of each rank");
  add_positive(app, "--test-batch-size", options.test_batch_size, "Images per step of the test");
  add_positive(app, "--lr", options.lr, "Learning rate of Adadelta");
  add_positive(app, "--gamma", options.gamma, "Factor of the learning rate after each epoch");
  add_non_negative(app, "--seed", options.seed, "Seed of the initial weights, dropout and order");
  add_non_negative(
      app, "--workers", options.workers, "Threads per rank that load images; 0: no threads");
  add_non_negative(app, "--limit", options.limit, "Number of images to use; 0: all");
  CLI::Option* const checkpoint_dir = app.add_option(
      "--checkpoint-dir", options.checkpoint_dir, "Folder of checkpoints, accessible to all ranks");
  add_positive(
      app, "--checkpoint-every", options.checkpoint_every, "Steps from checkpoint to checkpoint")
      ->needs(checkpoint_dir);
  app.add_flag("--resume", options.resumes, "Resume from the latest checkpoint, if there is any")
      ->needs(checkpoint_dir);
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  app.add_option("--tensorboard", options.tensorboard, "Write an event file into this folder");
  app.add_flag("--verbose", options.is_verbose, "Print a hash of the parameters on each rank");
  examples::parse_or_exit(app, argc, argv);
  return options;
}

/// Returns the name of an epoch, "epoch 1/3" for epoch 0 of 3.
[[nodiscard]] inline std::string title_of(const Options& options, int epoch) {
  return "epoch " + std::to_string(epoch + 1) + "/" + std::to_string(options.epochs);
}

/// Opens the progress report of a training that begins after `n_done` steps. `n_images` is the
/// share of each rank. A collective operation; every rank throws if rank 0 can't write the files.
[[nodiscard]] inline std::unique_ptr<unisono::report::Progress> open_progress(
    unisono::ProcessGroup& group,
    const Options& options,
    std::int64_t n_images,
    std::int64_t n_done) {
  const std::int64_t n_batches = (n_images + options.batch_size - 1) / options.batch_size;
  return examples::on_every_rank(group, [&] {
    return std::make_unique<unisono::report::Progress>(
        group,
        unisono::report::ProgressOptions{.total = options.epochs * n_batches,
                                         .start = n_done,
                                         .unit = "images",
                                         .json_file = options.json_file,
                                         .tensorboard = options.tensorboard});
  });
}

/// Prints the size of the training on rank 0.
inline void print_start(const unisono::ProcessGroup& group,
                        const Options& options,
                        std::int64_t n_images,
                        std::int64_t n_test_images) {
  if (group.rank() == 0) {
    std::printf("%lld training and %lld test images from %s, %d rank%s, batch %d x %d\n",
                static_cast<long long>(n_images),
                static_cast<long long>(n_test_images),
                options.data.c_str(),
                group.world_size(),
                group.world_size() == 1 ? "" : "s",
                options.batch_size,
                group.world_size());
    std::fflush(stdout);
  }
}

/// The result of an epoch.
struct EpochResult {
  int epoch;        // from 0
  double own_loss;  // mean of this rank
  double loss;      // mean of all ranks
  double accuracy;  // on all test images, from 0 to 1
  double n_images;  // of all ranks
  double seconds;   // of the training
};

/// Prints a line on each rank, and one more on rank 0.
inline void print_epoch(const unisono::ProcessGroup& group,
                        const Options& options,
                        const EpochResult& result) {
  std::printf("Rank  %d , epoch  %d :  %.6f\n", group.rank(), result.epoch, result.own_loss);
  if (group.rank() == 0) {
    std::printf("%s  loss %.4f  test accuracy %.2f%%  %.0f images/s  %.1f s\n",
                title_of(options, result.epoch).c_str(),
                result.loss,
                100 * result.accuracy,
                result.n_images / result.seconds,
                result.seconds);
  }
  std::fflush(stdout);
}

/// Prints the times of the steps on rank 0 and, with --verbose, a hash of the parameters on each
/// rank.
inline void print_end(const unisono::ProcessGroup& group,
                      const Options& options,
                      const unisono::StepReport& report,
                      const std::vector<torch::Tensor>& parameters) {
  if (group.rank() == 0) {
    std::printf("%s\n", report.line().c_str());
  }
  if (options.is_verbose) {
    const std::string hash = unisono::format_hash(unisono::hash_tensors(parameters));
    std::printf("Rank %d parameter hash %s\n", group.rank(), hash.c_str());
  }
  std::fflush(stdout);
}

/// Prints the path of the saved model on rank 0.
inline void print_saved(const unisono::ProcessGroup& group, const Options& options) {
  if (group.rank() == 0) {
    std::printf("saved the model to %s\n", std::filesystem::absolute(options.model_path).c_str());
    std::fflush(stdout);
  }
}

}  // namespace mnist
