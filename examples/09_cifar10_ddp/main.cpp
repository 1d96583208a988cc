// CIFAR-10 by DistributedDataParallel. The same program is started by a launcher, in either manner,
// or starts its ranks itself:
//
//     unisono run -n 2 cifar10_ddp
//     unisono launch -n 2 cifar10_ddp
//     cifar10_ddp --nprocs 2

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
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
#include "unisono/data/readers/cifar.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/transforms/augmented_images.h"
#include "unisono/data/transforms/normalize.h"
#include "unisono/launch/spawn_ranks.h"
#include "unisono/report/progress.h"
#include "unisono/torch/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/batch_tensors.h"
#include "unisono/torch/tensor/tensor.h"

#include "../command_line.h"
#include "net.h"

namespace {

using Model = unisono::DistributedDataParallel<torch::nn::Sequential>;

struct Options {
  std::vector<std::string> train{"../shared/data/cifar10_jpeg_subset_train_10000.bin.gz"};
  std::vector<std::string> test{"../shared/data/cifar10_jpeg_subset_test_2000.bin.gz"};
  int local_rank = -1;
  int nprocs = 0;
  int epochs = 10;
  int batch_size = 32;
  double lr = 0.02;
  std::string model_path = {};
  std::string json_file = {};
};

std::shared_ptr<const unisono::ImageDataset> load(const std::vector<std::string>& files) {
  return std::make_shared<unisono::ImageDataset>(
      unisono::read_cifar(files, unisono::CifarKind::kCifar10),
      std::vector{unisono::Normalize(0.4914, 0.2470),
                  unisono::Normalize(0.4822, 0.2435),
                  unisono::Normalize(0.4465, 0.2616)});
}

// Of all ranks' test images, in percent.
double test_accuracy(unisono::ProcessGroup& group, Model& model, const Options& options) {
  const auto images = load(options.test);
  unisono::DataLoader loader(images, {.batch_size = 100});
  loader.start(unisono::EvaluationSampler(images->size(), group));
  const torch::NoGradGuard no_grad;
  torch::Tensor n_correct = torch::zeros(1, torch::kDouble);
  while (std::optional<unisono::Batch> batch = loader.next()) {
    const auto [data, label] = unisono::as_tensors(std::move(*batch));
    n_correct += model.module()->forward(data).argmax(1).eq(label).sum();
  }
  unisono::all_reduce(group, n_correct);
  return 100 * n_correct.item<double>() / static_cast<double>(images->size());
}

void train(const Options& options) {
  const auto group = unisono::init_process_group();
  const auto trainset = std::make_shared<unisono::AugmentedImages>(load(options.train));
  unisono::DistributedSampler sampler(trainset->size(), *group);
  unisono::DataLoader loader(trainset, {.batch_size = options.batch_size, .num_workers = 1});
  torch::manual_seed(group->rank());  // the wrapper gives all ranks rank 0's parameters
  Model model(make_net(), group);
  torch::optim::SGD optimizer(model.parameters(),
                              torch::optim::SGDOptions(options.lr).momentum(0.9));
  unisono::Progress progress(
      *group, {.format = unisono::ProgressFormat::kNone, .json_file = options.json_file});

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    trainset->set_epoch(epoch);
    loader.start(sampler);
    double loss_sum = 0;
    while (std::optional<unisono::Batch> batch = loader.next()) {
      const auto [data, label] = unisono::as_tensors(std::move(*batch));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(model(data), label);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
      progress.step({{"loss", loss.item<double>()}}, data.size(0) * group->world_size());
    }
    std::printf("Rank %d, epoch %d: loss %.6f\n",
                group->rank(),
                epoch,
                loss_sum / static_cast<double>(loader.n_batches()));
    std::fflush(stdout);
  }
  const double accuracy = test_accuracy(*group, model, options);
  std::printf("Rank %d: test accuracy %.2f%%\n", group->rank(), accuracy);
  if (!options.model_path.empty()) {
    unisono::save_on_rank_0(*group, *model.module(), options.model_path);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a convnet on CIFAR-10, on ranks of a launcher or of its own");
  app.add_option("--local-rank", options.local_rank, "What old launchers give");
  app.add_option("--nprocs", options.nprocs, "Start so many ranks; without it a launcher has")
      ->check(CLI::PositiveNumber);
  app.add_option("--train", options.train, "Files of the binary version")->capture_default_str();
  app.add_option("--test", options.test, "The same of the test")->capture_default_str();
  app.add_option("--epochs,--num-epochs", options.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", options.batch_size, "Of a rank")->check(CLI::PositiveNumber);
  app.add_option("--lr", options.lr)->check(CLI::PositiveNumber);
  app.add_option("--model-path,--save", options.model_path, "Where rank 0 saves the module");
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  try {
    if (options.nprocs == 0) {
      train(options);
    } else {
      const auto start = [](int /*rank*/, const Options& given) { train(given); };
      unisono::spawn(start, std::tuple(options), {.nprocs = options.nprocs});
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cifar10_ddp: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
