// Kubeflow's MNIST example of DistributedDataParallel: the ranks divide a global batch, and rank 0
// saves the model.
//
//     unisono run -n 2 mnist_modelpath --model-path models
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../command_line.h"
#include "../mnist.h"
#include "../training.h"

namespace {

constexpr int kGlobalBatch = 128;

struct Options {
  std::string model_path;
  std::string data = examples::kFashionMnist;
  int epochs = 3;
  bool gpu = false;
  std::string json_file = {};
};

void train(const Options& options) {
  if (options.gpu) {
    throw std::runtime_error("--gpu: DistributedDataParallel here is for CPUs; leave it out");
  }
  const auto group = unisono::init_process_group();
  const int n_ranks = group->world_size();
  const std::filesystem::path path = std::filesystem::path(options.model_path) / "model_cpu.dat";
  if (group->rank() == 0) {
    std::filesystem::create_directories(options.model_path);
  }
  unisono::check_can_save_on_rank_0(*group, path);
  const auto images = examples::load_mnist(options.data, unisono::datasets::Split::kTrain);
  unisono::DistributedSampler sampler(images->size(), *group, {.seed = 1234});
  unisono::DataLoader loader(images,
                             {.batch_size = std::max(1, kGlobalBatch / n_ranks), .num_workers = 1});

  torch::manual_seed(1234);
  unisono::DistributedDataParallel model(examples::SmallNet(), group);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  unisono::report::Progress progress(
      *group, {.format = unisono::report::ProgressFormat::kNone, .json_file = options.json_file});
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    loader.start(sampler);
    const double own_loss = examples::train_epoch(
        loader, optimizer, progress, n_ranks, [&](const auto& samples, const auto& labels) {
          const torch::Tensor loss = torch::nll_loss(model(samples), labels);
          loss.backward();
          return loss;
        });
    const double loss = examples::mean_over_ranks(*group, own_loss, 1);
    if (group->rank() == 0) {
      std::printf("Epoch %d Loss %.6f Global batch size %d on %d ranks\n",
                  epoch,
                  loss,
                  kGlobalBatch,
                  n_ranks);
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
  examples::add_positive(app, "--epochs", options.epochs, "Passes over the images");
  app.add_flag("--gpu", options.gpu, "Train on GPUs");
  app.add_option("--json-file", options.json_file, "Append a line of JSON for each step to a file");
  examples::parse_or_exit(app, argc, argv);
  return examples::exit_code_of("mnist_modelpath", [&] { train(options); });
}
