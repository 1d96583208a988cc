// MNIST as Kubeflow's example of DistributedDataParallel trains it: a global batch that the ranks
// divide, and a model that is saved once.
//
//     unisono run -n 2 mnist_modelpath --model-path models
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/base/error_text.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/mnist.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/transforms/normalize.h"
#include "unisono/report/progress.h"
#include "unisono/torch/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/batch_tensors.h"
#include "unisono/torch/tensor/tensor.h"

#include "../command_line.h"
#include "net.h"

namespace {

constexpr int kGlobalBatch = 128;

struct Options {
  std::string model_path;
  std::string data = "/usr/share/datasets/fashion-mnist";
  int epochs = 3;
  bool gpu = false;
  std::string json_file = {};
};

void train(const Options& options) {
  const auto group = unisono::init_process_group();
  const std::filesystem::path path = std::filesystem::path(options.model_path) / "model_cpu.dat";
  if (group->rank() == 0) {
    std::filesystem::create_directories(options.model_path);
  }
  unisono::check_can_save_on_rank_0(*group, path);
  const auto images = std::make_shared<const unisono::ImageDataset>(
      unisono::load_mnist(options.data, unisono::Split::kTrain), unisono::mnist_normalize());

  torch::manual_seed(1234);
  unisono::DistributedDataParallel model(Net(), group);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  unisono::DistributedSampler sampler(images->size(), *group, {.seed = 1234});
  unisono::DataLoader loader(
      images, {.batch_size = std::max(1, kGlobalBatch / group->world_size()), .num_workers = 1});
  unisono::Progress progress(
      *group, {.format = unisono::ProgressFormat::kNone, .json_file = options.json_file});

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    loader.start(sampler);
    double loss_sum = 0;
    std::int64_t n_steps = 0;
    while (std::optional<unisono::Batch> batch = loader.next()) {
      const auto [x, labels] = unisono::as_tensors(std::move(*batch));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nll_loss(model(x), labels);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
      ++n_steps;
      progress.step({{"loss", loss.item<double>()}}, x.size(0) * group->world_size());
    }
    torch::Tensor loss = torch::tensor(loss_sum / static_cast<double>(n_steps), torch::kDouble);
    unisono::all_reduce(*group, loss);
    if (group->rank() == 0) {
      std::printf("Epoch %d Loss %.6f Global batch size %d on %d ranks\n",
                  epoch,
                  loss.item<double>() / group->world_size(),
                  kGlobalBatch,
                  group->world_size());
      std::fflush(stdout);
    }
  }
  unisono::save_on_rank_0(*group, *model.module(), path);
  if (group->rank() == 0) {
    std::printf(
        "%s is an archive of LibTorch: torch::load(net, path) reads it in C++, "
        "torch.load(path, weights_only=False).state_dict() in Python\n",
        path.c_str());
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a convnet on MNIST: unisono run -n 2 mnist_modelpath --model-path DIR");
  app.add_option("--model-path,--modelpath", options.model_path, "Folder for model_cpu.dat")
      ->required();
  app.add_option("--data", options.data, "Folder with the four IDX files")->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the images")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--gpu", options.gpu, "Train on GPUs");
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  try {
    if (options.gpu) {
      throw std::runtime_error("--gpu: DistributedDataParallel here is for CPUs; leave it out");
    }
    train(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist_modelpath: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
