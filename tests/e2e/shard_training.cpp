// shard_training DIGITS CHECKPOINTS EPOCHS WORKERS: trains a net with dropout and batch norm on
// four shards with any number of ranks. The loaders have WORKERS workers. The program saves a
// checkpoint after each step and resumes from the latest checkpoint. Each rank prints the hash of
// its parameters.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/datasets/idx.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/tensor.h"

namespace {

using unisono::TensorState;

constexpr int kShards = 4;
constexpr int kBatchSize = 2;

// A shard's samples, which one rank loads.
struct Shard {
  Shard(const std::shared_ptr<const unisono::datasets::ImageDataset>& images,
        int shard,
        int n_workers)
      : number(shard),
        sampler(images->size(), kShards, shard, {.seed = 5}),
        loader(images, {.batch_size = kBatchSize, .num_workers = n_workers, .drop_last = true}) {}

  [[nodiscard]] std::string order_name() const {
    return "shard" + std::to_string(number) + ".order";
  }

  int number;
  unisono::DistributedSampler sampler;
  unisono::DataLoader loader;
};

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(784, 16),
                               torch::nn::BatchNorm1d(16),
                               torch::nn::Dropout(0.5),
                               torch::nn::Linear(16, 10));
}

class Training {
 public:
  Training(const std::string& digits, const std::string& checkpoints, int n_workers)
      : folder_(checkpoints),
        model_(make_net(),
               group_,
               {.logical_ranks = kShards,
                .shard_seed = 11,
                .shard_buffers = unisono::ShardBuffers::kMean}),
        optimizer_(model_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        saver_(*group_, checkpoints) {
    const auto images = std::make_shared<unisono::datasets::ImageDataset>(
        unisono::datasets::load_mnist(digits, unisono::datasets::Split::kTrain),
        unisono::datasets::mnist_normalize());
    for (const int shard : model_.shards()) {
      shards_.push_back(std::make_unique<Shard>(images, shard, n_workers));
    }
  }

  void run(int n_epochs) {
    std::optional<TensorState> state = load();
    for (; epoch_ < n_epochs; ++epoch_) {
      start_epoch(state);
      state.reset();
      while (n_taken_ < shards_.front()->loader.n_batches()) {
        step();
        ++n_taken_;
        save();
      }
    }
    saver_.wait();
    std::printf("Rank %d parameter hash %s\n",
                group_->rank(),
                unisono::format_hash(unisono::hash_tensors(model_.parameters())).c_str());
  }

 private:
  std::optional<TensorState> load() {
    const std::optional<std::string> latest =
        unisono::checkpoint::latest_checkpoint(*group_, folder_);
    if (!latest) {
      return std::nullopt;
    }
    const TensorState state = unisono::load_state(*latest);
    unisono::load_module_state(*model_.module(), unisono::state_below(state, "model."));
    unisono::load_optimizer_state(
        optimizer_, *model_.module(), unisono::state_below(state, "optimizer."));
    model_.set_shard_step(unisono::integer_in(state, "step"));
    epoch_ = unisono::integer_in(state, "epoch");
    if (group_->rank() == 0) {
      std::printf("going on from %s\n", latest->c_str());
    }
    return state;
  }

  // Starts an epoch, at the position in `state` if there is a state.
  void start_epoch(const std::optional<TensorState>& state) {
    n_taken_ = state ? unisono::integer_in(*state, "n_taken") : 0;
    for (const std::unique_ptr<Shard>& shard : shards_) {
      shard->sampler.set_epoch(epoch_);
      std::optional<unisono::LoaderState> from;
      if (state) {
        from = {
            .n_taken = n_taken_,
            .order = static_cast<std::uint64_t>(unisono::integer_in(*state, shard->order_name()))};
      }
      shard->loader.start(shard->sampler, from);
    }
  }

  void step() {
    auto shard = shards_.begin();
    model_.for_each_shard([&](int) {
      const auto [images, labels] = unisono::as_tensors(*(*shard++)->loader.next());
      torch::nn::functional::cross_entropy(model_(images.flatten(1)), labels).backward();
    });
    optimizer_.step();
  }

  void save() {
    TensorState common{{"step", unisono::number_tensor(model_.shard_step())},
                       {"epoch", unisono::number_tensor(epoch_)},
                       {"n_taken", unisono::number_tensor(n_taken_)}};
    unisono::add_state(common, "model.", unisono::module_state(*model_.module()));
    unisono::add_state(
        common, "optimizer.", unisono::optimizer_state(optimizer_, *model_.module()));
    TensorState own;
    for (const std::unique_ptr<Shard>& shard : shards_) {
      const auto order = static_cast<std::int64_t>(shard->loader.state().order);
      own.emplace(shard->order_name(), unisono::number_tensor(order));
    }
    const unisono::StateParts state = unisono::parts_to_save(*group_, common, own);
    saver_.save_async(model_.shard_step(), state.parts, state.common);
  }

  std::shared_ptr<unisono::ProcessGroup> group_ = unisono::init_process_group();
  std::string folder_;
  unisono::DistributedDataParallel<torch::nn::Sequential> model_;
  torch::optim::SGD optimizer_;
  unisono::checkpoint::Saver saver_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::int64_t epoch_ = 0;
  std::int64_t n_taken_ = 0;  // Batches of this epoch that each shard has taken.
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: shard_training DIGITS CHECKPOINTS EPOCHS WORKERS\n");
    return 2;
  }
  try {
    torch::set_num_threads(1);
    Training(argv[1], argv[2], std::stoi(argv[4])).run(std::stoi(argv[3]));
    unisono::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shard_training: %s\n", error.what());
    return 1;
  }
  return 0;
}
