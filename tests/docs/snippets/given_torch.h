#pragma once

// Names that the guides' snippets use without a declaration, on pages with LibTorch. The names are
// declared but never defined, because snippets are only compiled.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/script.h>

#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/save.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/datasets/idx.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/report/progress.h"
#include "unisono/torch.h"

namespace given::train {

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  void reset() override;
  torch::Tensor forward(const torch::Tensor& images);
  torch::nn::Sequential features;
};

TORCH_MODULE(Net);
using Mlp = Net;
using ConvNet = Net;

struct Examples {
  torch::Tensor images;
  torch::Tensor labels;
};

struct Loader {
  std::optional<Examples> next();
  std::int64_t n_batches();
};

extern std::shared_ptr<unisono::ProcessGroup> group;
extern unisono::DistributedDataParallel<Net> model;
extern torch::optim::Adam optimizer;
extern Loader loader;
extern std::vector<std::pair<torch::Tensor, torch::Tensor>> my_batches;
std::pair<torch::Tensor, torch::Tensor> batch_of(int shard, std::int64_t step);
extern torch::Tensor images, labels, loss;
extern unisono::TensorState common, own, state;
extern std::string name, folder;
extern double accuracy;
extern std::int64_t epoch, n_epochs, step;

}  // namespace given::train

namespace given::train_modules {

using namespace given::train;

}  // namespace given::train_modules

namespace given::train_uneven {

using namespace given::train;

}  // namespace given::train_uneven

namespace given::optimizers {

using namespace given::train;

}  // namespace given::optimizers

namespace given::progress {

using namespace given::train;

}  // namespace given::progress

namespace given::parallel {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int number);
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs);
};

using Block = BlockImpl;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const std::shared_ptr<unisono::ProcessGroup>& group);
  torch::Tensor forward(const torch::Tensor& ids);
};

TORCH_MODULE(Net);

using Batches = std::vector<torch::data::Example<>>;
extern std::unique_ptr<Batches> loader;
extern std::shared_ptr<unisono::ProcessGroup> group, world;
extern torch::nn::Sequential net;
extern unisono::parallel::Pipeline model;
extern torch::Tensor chunk, ids, images, targets;
torch::Tensor loss_of_the_output(const torch::Tensor& output);
extern std::int64_t step;

}  // namespace given::parallel

namespace given::pipeline_schedules {

using namespace given::parallel;

}  // namespace given::pipeline_schedules

namespace given::tensor_parallel {

using namespace given::parallel;

}  // namespace given::tensor_parallel

namespace given::checkpoints {

extern std::shared_ptr<unisono::ProcessGroup> group;
extern torch::nn::Linear module;
extern unisono::DistributedDataParallel<torch::nn::Linear> model;
extern torch::optim::SGD optimizer;
extern std::int64_t step;

}  // namespace given::checkpoints

namespace given::gpu {

extern std::shared_ptr<unisono::ProcessGroup> group;
extern given::train::Net model;
extern torch::Tensor images, gradient;

}  // namespace given::gpu
