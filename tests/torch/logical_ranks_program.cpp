// Trains a net with dropout and batch norm. The first argument is the number of shards and the
// second the number of steps. The program resumes from the file in the third argument if that file
// exists, and saves its state there. Rank 0 prints the hash of the state.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"

#include "canonical.h"
#include "models.h"

namespace {

using unisono::testing::make_sample;

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(144, 32),
                               torch::nn::BatchNorm1d(32),
                               torch::nn::Dropout(0.5),
                               torch::nn::Linear(32, 10));
}

void train(int n_shards, int n_steps, const std::string& file) {
  const std::shared_ptr<unisono::ProcessGroup> group = unisono::init_process_group();
  torch::set_num_threads(1);
  torch::nn::Sequential net = make_net();
  std::int64_t step = 0;
  if (std::filesystem::exists(file)) {
    const unisono::TensorState state = unisono::load_state(file);
    unisono::load_module_state(*net, unisono::state_below(state, "net."));
    step = unisono::integer_in(state, "step");
  }
  unisono::DistributedDataParallel model(
      net,
      group,
      {.logical_ranks = n_shards, .shard_seed = 11, .shard_buffers = unisono::ShardBuffers::kMean});
  model.set_shard_step(step);
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  for (int i = 0; i < n_steps; ++i) {
    model.for_each_shard([&](int shard) {
      const auto sample =
          make_sample(static_cast<int>(model.shard_step()), shard, 4, torch::kFloat);
      torch::nn::functional::cross_entropy(model(sample.images.flatten(1)), sample.labels)
          .backward();
    });
    optimizer.step();
  }
  if (group->rank() == 0) {
    unisono::TensorState state{{"step", unisono::number_tensor(model.shard_step())}};
    unisono::add_state(state, "net.", unisono::module_state(*net));
    unisono::save_state(file, state);
    std::vector<at::Tensor> tensors = net->parameters();
    for (const at::Tensor& buffer : net->buffers()) {
      tensors.push_back(buffer);
    }
    std::cout << unisono::format_hash(unisono::hash_tensors(tensors)) << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: logical_ranks_program SHARDS STEPS FILE\n";
    return 2;
  }
  train(std::stoi(argv[1]), std::stoi(argv[2]), argv[3]);
  return 0;
}
