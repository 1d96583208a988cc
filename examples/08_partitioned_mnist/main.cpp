// Synchronous SGD by hand: each rank trains on its part of MNIST, and averages its gradients with
// the others' after each backward pass.
//
//     partitioned_mnist --size 2 --data FOLDER
//     unisono run -n 2 partitioned_mnist --data FOLDER

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/base/error_text.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/mnist.h"
#include "unisono/data/samplers/data_partitioner.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/transforms/normalize.h"
#include "unisono/launch/spawn_ranks.h"
#include "unisono/report/progress.h"
#include "unisono/torch/tensor/batch_tensors.h"
#include "unisono/torch/tensor/parameter_hash.h"
#include "unisono/torch/tensor/tensor.h"

#include "../command_line.h"
#include "net.h"

namespace {

constexpr int kGlobalBatch = 128;

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int epochs = 10;
  std::int64_t limit = 0;
  std::string json_file = {};
};

std::shared_ptr<const unisono::ImageDataset> load(const Options& options, unisono::Split split) {
  return std::make_shared<unisono::ImageDataset>(unisono::load_mnist(options.data, split),
                                                 unisono::mnist_normalize());
}

// What unisono::average_gradients() does in one operation for all parameters.
void average_gradients(unisono::ProcessGroup& group, const torch::nn::Module& model) {
  for (const torch::Tensor& parameter : model.parameters()) {
    unisono::all_reduce(group, parameter.grad(), {.op = unisono::kSum});
    parameter.grad().div_(group.world_size());
  }
}

// Of all ranks' test images, in percent.
double test_accuracy(unisono::ProcessGroup& group, Net& model, const Options& options) {
  const auto images = load(options, unisono::Split::kTest);
  unisono::DataLoader loader(images, {.batch_size = 1000});
  loader.start(unisono::EvaluationSampler(images->size(), group));
  const torch::NoGradGuard no_grad;
  model->eval();
  torch::Tensor n_correct = torch::zeros(1, torch::kDouble);
  while (std::optional<unisono::Batch> batch = loader.next()) {
    const auto [data, target] = unisono::as_tensors(std::move(*batch));
    n_correct += model(data).argmax(1).eq(target).sum();
  }
  unisono::all_reduce(group, n_correct);
  return 100 * n_correct.item<double>() / static_cast<double>(images->size());
}

void run(const Options& options) {
  const auto group = unisono::init_process_group();
  const int rank = group->rank();
  const int size = group->world_size();
  torch::manual_seed(1234);
  const auto images = load(options, unisono::Split::kTrain);
  const std::int64_t n_images = options.limit > 0 ? options.limit : images->size();
  const std::vector<double> sizes(static_cast<std::size_t>(size), 1.0 / size);
  const unisono::DataPartitioner partitioner(n_images, sizes);
  unisono::DataLoader train_set(images,
                                {.batch_size = std::max(1, kGlobalBatch / size), .num_workers = 1});
  Net model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  unisono::Progress progress(
      *group, {.format = unisono::ProgressFormat::kNone, .json_file = options.json_file});
  std::mt19937 random(1234);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto part = partitioner.use(rank);
    std::vector<std::int64_t> order(part.begin(), part.end());
    std::ranges::shuffle(order, random);
    train_set.start(order);
    double epoch_loss = 0;
    while (std::optional<unisono::Batch> batch = train_set.next()) {
      const auto [data, target] = unisono::as_tensors(std::move(*batch));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nll_loss(model(data), target);
      epoch_loss += loss.item<double>();
      loss.backward();
      average_gradients(*group, *model);
      optimizer.step();
      progress.step({{"loss", loss.item<double>()}}, data.size(0) * size);
    }
    const double mean = epoch_loss / static_cast<double>(train_set.n_batches());
    std::printf("Rank  %d , epoch  %d :  %.6f\n", rank, epoch, mean);
    std::fflush(stdout);
  }
  const std::string hash = unisono::format_hash(unisono::hash_tensors(model->parameters()));
  const double accuracy = test_accuracy(*group, model, options);
  std::printf("Rank  %d : test accuracy %.2f%%, parameters %s\n", rank, accuracy, hash.c_str());
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int size = 0;
  CLI::App app("Trains a convnet on MNIST, with gradients that the program averages itself");
  app.add_option("--size", size, "Start so many ranks; without it a launcher has")
      ->check(CLI::PositiveNumber);
  app.add_option("--data", options.data, "Folder with the four IDX files")->capture_default_str();
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--limit", options.limit, "Train on so many images; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  try {
    if (size == 0) {
      run(options);
    } else {
      const auto start = [](int /*rank*/, const Options& given) { run(given); };
      unisono::spawn(start, std::tuple(options), {.nprocs = size});
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "partitioned_mnist: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
