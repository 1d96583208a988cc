#include "unisono/torch/optim/zero_redundancy_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::optim {
namespace {

using ::torch::optim::OptimizerParamGroup;

std::vector<at::Tensor> all_parameters(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<at::Tensor> parameters;
  for (const OptimizerParamGroup& group : groups) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace

std::vector<int> divide_parameters(std::span<const std::int64_t> n_bytes, int world_size) {
  std::vector<std::size_t> by_size(n_bytes.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size,
                           [&](std::size_t a, std::size_t b) { return n_bytes[a] > n_bytes[b]; });
  std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(world_size), 0);
  std::vector<int> owners(n_bytes.size());
  for (const std::size_t parameter : by_size) {
    const auto least = std::ranges::min_element(of_ranks);
    *least += n_bytes[parameter];
    owners[parameter] = static_cast<int>(least - of_ranks.begin());
  }
  return owners;
}

ParameterShares::ParameterShares(std::shared_ptr<ProcessGroup> group,
                                 const std::vector<OptimizerParamGroup>& groups)
    : group_(std::move(group)) {
  const std::vector<at::Tensor> parameters = all_parameters(groups);
  if (group_ == nullptr || parameters.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("ZeroRedundancyOptimizer: ") +
                    (group_ == nullptr ? "the process group is null" : "there are no parameters"));
  }
  std::vector<std::int64_t> n_bytes;
  for (const at::Tensor& parameter : parameters) {
    n_bytes.push_back(static_cast<std::int64_t>(parameter.nbytes()));
  }
  const std::vector<int> owners = divide_parameters(n_bytes, group_->world_size());
  for (int rank = 0; rank < group_->world_size(); ++rank) {
    std::vector<NamedTensor> of_rank;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (owners[i] == rank) {
        owners_.emplace(parameters[i].unsafeGetTensorImpl(), rank);
        of_rank.push_back({.name = "parameter " + std::to_string(i), .tensor = parameters[i]});
      }
      if (owners[i] == rank && rank == group_->rank()) {
        own_.push_back(parameters[i]);
      }
    }
    of_ranks_.emplace_back(std::move(of_rank), "parameters of rank " + std::to_string(rank));
  }
}

void ParameterShares::note_step(bool is_first) const {
  if (!own_.empty()) {
    optim::note_step(own_.front(), is_first);
  }
}

bool ParameterShares::is_own(const at::Tensor& parameter) const {
  return std::ranges::any_of(own_, [&](const at::Tensor& own) { return own.is_same(parameter); });
}

std::vector<OptimizerParamGroup> ParameterShares::own_groups(
    const std::vector<OptimizerParamGroup>& groups) const {
  std::vector<OptimizerParamGroup> own;
  for (const OptimizerParamGroup& group : groups) {
    std::vector<at::Tensor> parameters;
    std::ranges::copy_if(group.params(),
                         std::back_inserter(parameters),
                         [&](const at::Tensor& parameter) { return is_own(parameter); });
    own.emplace_back(std::move(parameters), group.options().clone());
  }
  return own;
}

void ParameterShares::share_values() {
  for (std::size_t rank = 0; rank < of_ranks_.size(); ++rank) {
    of_ranks_[rank].run(*group_, std::nullopt, static_cast<int>(rank));
  }
}

void ParameterShares::share_rates(std::vector<OptimizerParamGroup>& groups, int root) const {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : groups) {
    rates.push_back(group.options().get_lr());
  }
  group_->broadcast(as_buffer(std::span(rates)), {.root = root, .label = "learning rates"});
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(rates[i]);
  }
}

TensorState ParameterShares::own_part(const TensorState& state,
                                      const ::torch::nn::Module& module) const {
  TensorState part;
  add_state(part, "options.", state_below(state, "options."));
  for (const auto& item : module.named_parameters()) {
    const std::string prefix = "state." + item.key() + ".";
    if (is_own(item.value())) {
      add_state(part, prefix, state_below(state, prefix));
    }
  }
  return part;
}

}  // namespace unisono::optim
