// DistributedDataParallel on CIFAR-10. A launcher starts the ranks, or the program itself:
//
//     unisono run -n 2 cifar10_ddp
//     unisono launch -n 2 cifar10_ddp
//     cifar10_ddp --nprocs 2
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../command_line.h"
#include "../training.h"
#include "net.h"

namespace datasets = unisono::datasets;

namespace {

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

std::shared_ptr<const datasets::ImageDataset> load(const std::vector<std::string>& files) {
  return std::make_shared<datasets::ImageDataset>(
      datasets::read_cifar(files, datasets::CifarKind::kCifar10),
      std::vector{datasets::Normalize(0.4914, 0.2470),
                  datasets::Normalize(0.4822, 0.2435),
                  datasets::Normalize(0.4465, 0.2616)});
}

void train(const Options& options) {
  const auto group = unisono::init_process_group();
  const auto images = std::make_shared<datasets::AugmentedImages>(load(options.train));
  const auto test_images = load(options.test);
  unisono::DistributedSampler sampler(images->size(), *group);
  unisono::DataLoader loader(images, {.batch_size = options.batch_size, .num_workers = 1});
  unisono::DataLoader test_loader(test_images, {.batch_size = 100});

  torch::manual_seed(group->rank());  // The wrapper copies the parameters of rank 0 to all ranks.
  unisono::DistributedDataParallel model(make_net(), group);
  torch::optim::SGD optimizer(model.parameters(),
                              torch::optim::SGDOptions(options.lr).momentum(0.9));
  unisono::report::Progress progress(
      *group, {.format = unisono::report::ProgressFormat::kNone, .json_file = options.json_file});
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    images->set_epoch(epoch);
    loader.start(sampler);
    const double loss = examples::train_epoch(
        loader,
        optimizer,
        progress,
        group->world_size(),
        [&](const torch::Tensor& samples, const torch::Tensor& labels) {
          const torch::Tensor batch_loss = torch::cross_entropy_loss(model(samples), labels);
          batch_loss.backward();
          return batch_loss;
        });
    std::printf("Rank %d, epoch %d: loss %.6f\n", group->rank(), epoch, loss);
    std::fflush(stdout);
  }
  test_loader.start(unisono::EvaluationSampler(test_images->size(), *group));
  const double accuracy = examples::test_accuracy(
      *group, test_loader, [&](const torch::Tensor& x) { return model.module()->forward(x); });
  std::printf("Rank %d: test accuracy %.2f%%\n", group->rank(), 100 * accuracy);
  if (!options.model_path.empty()) {
    unisono::save_on_rank_0(*group, *model.module(), options.model_path);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a convnet on CIFAR-10, on ranks of a launcher or of its own");
  app.add_option("--local-rank", options.local_rank, "Ignored; some launchers pass this option");
  examples::add_n_ranks(app, "--nprocs", options.nprocs);
  app.add_option("--train", options.train, "Training files of the binary version")
      ->capture_default_str();
  app.add_option("--test", options.test, "Test files of the binary version")->capture_default_str();
  examples::add_positive(
      app, "--epochs,--num-epochs", options.epochs, "Passes over the training images");
  examples::add_positive(app, "--batch-size", options.batch_size, "Images per step of each rank");
  examples::add_positive(app, "--lr", options.lr, "Learning rate of SGD");
  app.add_option("--model-path,--save", options.model_path, "File to which rank 0 saves the model");
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  return examples::exit_code_of("cifar10_ddp",
                                [&] { examples::run_or_spawn(options.nprocs, train, options); });
}
