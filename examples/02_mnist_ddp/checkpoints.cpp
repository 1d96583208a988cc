#include "checkpoints.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/torch/checkpoint/module_state.h"
#include "unisono/torch/checkpoint/tensor_state.h"

namespace mnist {

using unisono::TensorState;

namespace {

torch::Tensor tensor_in(const TensorState& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "the checkpoint is none of this program's: it has no " + name);
  }
  return found->second;
}

}  // namespace

Checkpoints::Checkpoints(unisono::ProcessGroup& group, std::string folder)
    : group_(group),
      folder_(std::move(folder)),
      saver_(group, folder_),
      own_("rank" + std::to_string(group.rank()) + ".") {}

std::optional<std::string> Checkpoints::latest() {
  return unisono::checkpoint::latest_checkpoint(group_, folder_);
}

void Checkpoints::save(const Position& position,
                       const unisono::LoaderState& loader,
                       const NetImpl& net,
                       const torch::optim::Optimizer& optimizer) {
  using unisono::number_tensor;
  TensorState common{{"training.epoch", number_tensor(position.epoch)},
                     {"training.step", number_tensor(position.step)},
                     {"training.n_steps", number_tensor(position.n_steps)},
                     {"training.n_taken", number_tensor(loader.n_taken)}};
  unisono::add_state(common, "model.", unisono::module_state(net));
  unisono::add_state(common, "optimizer.", unisono::optimizer_state(optimizer, net));
  const TensorState own{{own_ + "n_images", number_tensor(position.n_images)},
                        {own_ + "loss_sum", number_tensor(position.loss_sum)},
                        {own_ + "order", number_tensor(static_cast<std::int64_t>(loader.order))},
                        {own_ + "random", unisono::random_state()}};
  const unisono::StateParts state = unisono::parts_to_save(group_, common, own);
  saver_.save_async(position.step, state.parts, state.common);
}

Checkpoints::Loaded Checkpoints::load(const std::string& checkpoint,
                                      NetImpl& net,
                                      torch::optim::Optimizer& optimizer) {
  using unisono::integer_in;
  unisono::checkpoint::Reader reader(checkpoint);
  if (reader.manifest() && reader.manifest()->world_size != group_.world_size()) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         checkpoint + ": the training had " +
                             std::to_string(reader.manifest()->world_size) +
                             " ranks, and goes on with as many; this job has " +
                             std::to_string(group_.world_size()));
  }
  const TensorState state = unisono::load_state(reader);
  unisono::load_module_state(net, unisono::state_below(state, "model."));
  unisono::load_optimizer_state(optimizer, net, unisono::state_below(state, "optimizer."));
  unisono::set_random_state(tensor_in(state, own_ + "random"));
  return {.position = {.epoch = integer_in(state, "training.epoch"),
                       .step = integer_in(state, "training.step"),
                       .n_steps = integer_in(state, "training.n_steps"),
                       .n_images = integer_in(state, own_ + "n_images"),
                       .loss_sum = unisono::real_in(state, own_ + "loss_sum")},
          .loader = {.n_taken = integer_in(state, "training.n_taken"),
                     .order = static_cast<std::uint64_t>(integer_in(state, own_ + "order"))}};
}

void Checkpoints::wait() {
  saver_.wait();
}

}  // namespace mnist
