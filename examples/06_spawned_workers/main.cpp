// A trainer that starts its workers itself, as scripts with torch.multiprocessing.spawn do:
//
//     spawned_workers --distributed --nprocs 2 --syncBN
#include <cstddef>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/launch/spawn_ranks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/nn/sync_batch_norm.h"

namespace {

struct Options {
  bool distributed = false;
  int port = 0;
  int nprocs = 1;
  bool sync_bn = false;
  int batch_size = 32;
  int steps = 20;
};

constexpr int kFeatures = 40;
constexpr int kFrames = 100;
constexpr int kSpeakers = 8;

// Frames of 40 features each, of speakers that differ in their mean.
std::tuple<torch::Tensor, torch::Tensor> make_batch(int batch_size) {
  const torch::Tensor speakers = torch::randint(kSpeakers, {batch_size});
  const torch::Tensor means = speakers.to(torch::kFloat).view({batch_size, 1, 1}) / 4;
  return {torch::randn({batch_size, kFeatures, kFrames}) + means, speakers};
}

torch::nn::Sequential make_speaker_net() {
  return torch::nn::Sequential(torch::nn::Conv1d(kFeatures, 64, 5),
                               torch::nn::BatchNorm1d(64),
                               torch::nn::ReLU(),
                               torch::nn::AdaptiveAvgPool1d(1),
                               torch::nn::Flatten(),
                               torch::nn::Linear(64, kSpeakers));
}

// Where the workers meet: at the port, or where spawn() has them meet.
unisono::InitOptions meeting(int rank, const Options& options) {
  if (options.port == 0) {
    return {};
  }
  return {.init_method = "tcp://127.0.0.1:" + std::to_string(options.port) + "?rank=" +
                         std::to_string(rank) + "&world_size=" + std::to_string(options.nprocs)};
}

void main_worker(int rank, const Options& options) {
  const auto group = unisono::init_process_group(meeting(rank, options));
  torch::manual_seed(1);
  torch::nn::Sequential net = make_speaker_net();
  if (options.sync_bn) {
    std::vector<int> all(static_cast<std::size_t>(group->world_size()));
    std::iota(all.begin(), all.end(), 0);
    unisono::nn::convert_sync_batchnorm(*net, group->new_group(all));
    std::printf("----syncBN----\n");
  }
  unisono::DistributedDataParallel model(net, group);
  std::printf("Loaded the model on CPU %d\n", rank);
  std::fflush(stdout);

  torch::manual_seed(100 + rank);
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(1e-2));
  double loss_of_last = 0;
  for (int step = 0; step < options.steps; ++step) {
    const auto [x, speakers] = make_batch(options.batch_size);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(model(x), speakers);
    loss.backward();
    optimizer.step();
    loss_of_last = loss.item<double>();
  }
  model.check_consistent();
  std::printf("worker %d of %d: loss %.3f\n", rank, group->world_size(), loss_of_last);
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small speaker recognizer on made-up features, by workers of its own");
  app.add_flag("--distributed", options.distributed, "Several workers");
  app.add_option("--nprocs", options.nprocs, "How many")->check(CLI::PositiveNumber);
  app.add_option("--port", options.port, "Port where they meet; 0: any")
      ->check(CLI::Range(0, 65535));
  app.add_flag("--syncBN", options.sync_bn, "Batch statistics of all workers together");
  app.add_option("--batch-size,--batch_size", options.batch_size, "Utterances a step and worker")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    if (!options.distributed) {
      options.nprocs = 1;
    }
    unisono::spawn(main_worker, std::tuple(options), {.nprocs = options.nprocs});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spawned_workers: %s\n", error.what());
    return 1;
  }
}
