#include "options.h"

#include <limits>

#include "../command_line.h"

namespace mnist {

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a convnet on MNIST or Fashion-MNIST, on as many ranks as it is started on: "
      "unisono run -n 2 mnist");
  const CLI::Range positive(1, std::numeric_limits<int>::max());
  app.add_option("--data", options.data, "Folder with the four IDX files")->capture_default_str();
  app.add_option(
         "--model-path,--save", options.model_path, "Where rank 0 saves the model; '' for nowhere")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the training images")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images per step of each rank")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--test-batch-size", options.test_batch_size, "Images per step of the test")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate of Adadelta")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--gamma", options.gamma, "Factor of the learning rate after each epoch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the initial weights, dropout and order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--workers", options.workers, "Threads per rank that load images; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--limit", options.limit, "Use only so many images; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI::Option* const checkpoint_dir = app.add_option(
      "--checkpoint-dir", options.checkpoint_dir, "Folder of checkpoints, which all ranks reach");
  app.add_option("--checkpoint-every", options.checkpoint_every, "Steps between checkpoints")
      ->check(positive)
      ->needs(checkpoint_dir)
      ->capture_default_str();
  app.add_flag("--resume", options.resumes, "Go on from the latest checkpoint, if there is one")
      ->needs(checkpoint_dir);
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  app.add_option("--tensorboard", options.tensorboard, "Write an event file into this folder");
  app.add_flag("--verbose", options.is_verbose, "Print a hash of the parameters on each rank");
  examples::parse_or_exit(app, argc, argv);
  return options;
}

}  // namespace mnist
