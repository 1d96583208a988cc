// Synchronous SGD by hand: each rank trains on a part of MNIST, and the ranks average their
// gradients after each backward pass.
//
//     partitioned_mnist --size 2 --data FOLDER
//     unisono run -n 2 partitioned_mnist --data FOLDER
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../command_line.h"
#include "../mnist.h"
#include "../training.h"

namespace {

using unisono::datasets::Split;

constexpr int kGlobalBatch = 128;

struct Options {
  std::string data = examples::kFashionMnist;
  int epochs = 10;
  std::int64_t limit = 0;
  std::string json_file = {};
};

// unisono::average_gradients() needs one operation for all parameters.
void average_gradients(unisono::ProcessGroup& group, const torch::nn::Module& model) {
  for (const torch::Tensor& parameter : model.parameters()) {
    unisono::all_reduce(group, parameter.grad(), {.op = unisono::kSum});
    parameter.grad().div_(group.world_size());
  }
}

void run(const Options& options) {
  const auto group = unisono::init_process_group();
  const int rank = group->rank();
  const int size = group->world_size();
  const auto images = examples::load_mnist(options.data, Split::kTrain, options.limit);
  const auto test_images = examples::load_mnist(options.data, Split::kTest);
  const std::vector<double> sizes(static_cast<std::size_t>(size), 1.0 / size);
  const unisono::DataPartitioner partitioner(images->size(), sizes);
  unisono::DataLoader loader(images,
                             {.batch_size = std::max(1, kGlobalBatch / size), .num_workers = 1});
  unisono::DataLoader test_loader(test_images, {.batch_size = 1000});

  torch::manual_seed(1234);
  examples::SmallNet model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  unisono::report::Progress progress(
      *group, {.format = unisono::report::ProgressFormat::kNone, .json_file = options.json_file});
  std::mt19937 random(1234);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto part = partitioner.use(rank);
    std::vector<std::int64_t> order(part.begin(), part.end());
    std::ranges::shuffle(order, random);
    loader.start(order);
    const double loss = examples::train_epoch(
        loader, optimizer, progress, size, [&](const auto& samples, const auto& labels) {
          const torch::Tensor batch_loss = torch::nll_loss(model(samples), labels);
          batch_loss.backward();
          average_gradients(*group, *model);
          return batch_loss;
        });
    std::printf("Rank  %d , epoch  %d :  %.6f\n", rank, epoch, loss);
    std::fflush(stdout);
  }
  const std::string hash = unisono::format_hash(unisono::hash_tensors(model->parameters()));
  model->eval();
  test_loader.start(unisono::EvaluationSampler(test_images->size(), *group));
  const double accuracy = 100 * examples::test_accuracy(*group, test_loader, model);
  std::printf("Rank  %d : test accuracy %.2f%%, parameters %s\n", rank, accuracy, hash.c_str());
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int size = 0;
  CLI::App app("Trains a convnet on MNIST, with gradients that the program averages itself");
  examples::add_n_ranks(app, "--size", size);
  app.add_option("--data", options.data, "Folder with the four IDX files")->capture_default_str();
  examples::add_positive(app, "--epochs", options.epochs, "Passes over the images");
  examples::add_non_negative(app, "--limit", options.limit, "Number of images to train on; 0: all");
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  return examples::exit_code_of("partitioned_mnist",
                                [&] { examples::run_or_spawn(size, run, options); });
}
