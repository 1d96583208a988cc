#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <unisono/torch.h>

#include "console.h"

namespace mnist {

/// The position of a training; with model, optimizer and random generator, the complete state.
struct Position {
  int epoch = 0;
  std::int64_t step = 0;                                      // of all epochs
  std::optional<unisono::LoaderState> loader = std::nullopt;  // absent at the start of an epoch
  double loss_sum = 0;                                        // of this rank's steps in this epoch

  /// Counts a step of this rank. `state` is the loader state after the step.
  void add_step(double loss, const unisono::LoaderState& state) {
    ++step;
    loader = state;
    loss_sum += loss;
  }

  void begin_next_epoch() { *this = {.epoch = epoch + 1, .step = step}; }

  /// The mean over this rank's steps in this epoch.
  [[nodiscard]] double mean_loss() const {
    return loader ? loss_sum / static_cast<double>(loader->n_taken) : 0;
  }
};

/// The checkpoints for which the options ask. A resumed training needs the same number of ranks and
/// ends with the same bits as an uninterrupted training. All members are collective operations.
class Checkpoints {
 public:
  Checkpoints(std::shared_ptr<unisono::ProcessGroup> group, const Options& options)
      : group_(std::move(group)),
        folder_(options.checkpoint_dir),
        every_(options.checkpoint_every),
        resumes_(options.resumes) {
    if (!folder_.empty()) {
      saver_.emplace(*group_, folder_);
    }
  }

  /// Copies the state if a checkpoint is due. A thread writes the copy while the training
  /// continues.
  void save_if_due(const Position& position,
                   const torch::nn::Module& model,
                   const torch::optim::Optimizer& optimizer) {
    using unisono::number_tensor;
    if (!saver_ || position.step % every_ != 0) {
      return;
    }
    unisono::TensorState common{{"training.epoch", number_tensor(std::int64_t{position.epoch})},
                                {"training.step", number_tensor(position.step)},
                                {"training.n_taken", number_tensor(position.loader->n_taken)},
                                {"training.world_size", number_tensor(world_size())}};
    unisono::add_state(common, "model.", unisono::module_state(model));
    unisono::add_state(common, "optimizer.", unisono::optimizer_state(optimizer, model));
    const auto order = static_cast<std::int64_t>(position.loader->order);
    const unisono::TensorState own{{own_ + "loss_sum", number_tensor(position.loss_sum)},
                                   {own_ + "order", number_tensor(order)},
                                   {own_ + "random", unisono::random_state()}};
    const unisono::StateParts state = unisono::parts_to_save(*group_, common, own);
    saver_->save_async(position.step, state.parts, state.common);
  }

  /// Loads the latest checkpoint and returns the position; without a checkpoint, or without the
  /// option, returns the start of the training.
  ///
  /// Throws unisono::Error for a checkpoint of another number of ranks, another model or another
  /// optimizer.
  Position resume(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
    using unisono::integer_in;
    const std::optional<std::string> latest =
        resumes_ ? unisono::checkpoint::latest_checkpoint(*group_, folder_) : std::nullopt;
    if (!latest) {
      return {};
    }
    const unisono::TensorState state = unisono::load_state(*group_, *latest);
    if (const std::int64_t saved = integer_in(state, "training.world_size");
        saved != world_size()) {
      throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                           *latest + ": the training had " + std::to_string(saved) +
                               " ranks, and continues with as many; this job has " +
                               std::to_string(world_size()));
    }
    unisono::load_module_state(model, unisono::state_below(state, "model."));
    unisono::load_optimizer_state(optimizer, model, unisono::state_below(state, "optimizer."));
    unisono::set_random_state(state.at(own_ + "random"));
    if (group_->rank() == 0) {
      std::printf("going on from %s\n", latest->c_str());
      std::fflush(stdout);
    }
    const auto order = static_cast<std::uint64_t>(integer_in(state, own_ + "order"));
    return {.epoch = static_cast<int>(integer_in(state, "training.epoch")),
            .step = integer_in(state, "training.step"),
            .loader = unisono::LoaderState{.n_taken = integer_in(state, "training.n_taken"),
                                           .order = order},
            .loss_sum = unisono::real_in(state, own_ + "loss_sum")};
  }

  /// Returns after the last checkpoint is on the disk.
  void wait() {
    if (saver_) {
      saver_->wait();
    }
  }

 private:
  [[nodiscard]] std::int64_t world_size() const { return group_->world_size(); }

  std::shared_ptr<unisono::ProcessGroup> group_;
  std::string folder_;
  int every_;
  bool resumes_;
  std::optional<unisono::checkpoint::Saver> saver_;
  // Prefix of the names of this rank's tensors.
  std::string own_ = "rank" + std::to_string(group_->rank()) + ".";
};

}  // namespace mnist
