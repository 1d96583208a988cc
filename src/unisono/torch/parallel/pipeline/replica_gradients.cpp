#include "unisono/torch/parallel/pipeline/replica_gradients.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/parallel/pipeline/with_label.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

ReplicaGradients::ReplicaGradients(std::shared_ptr<ProcessGroup> group,
                                   std::vector<int> order,
                                   const std::map<int, std::vector<at::Tensor>>& parameters,
                                   std::optional<std::chrono::milliseconds> timeout)
    : group_(std::move(group)),
      order_(std::move(order)),
      parameters_(parameters),
      timeout_(timeout) {
  for (const auto& [stage, of_stage] : parameters) {
    std::map<at::ScalarType, std::vector<std::size_t>> by_type;
    stages_[stage];
    for (std::size_t i = 0; i < of_stage.size(); ++i) {
      by_type[of_stage[i].scalar_type()].push_back(i);
    }
    for (auto& [type, places] : by_type) {
      auto count = static_cast<std::int64_t>(places.size());
      for (const std::size_t place : places) {
        count += of_stage[place].numel();
      }
      stages_[stage].flats.push_back(
          {.tensor = allocate_tensor(*group_, {count}, type), .parameters = std::move(places)});
    }
  }
}

void ReplicaGradients::add(int stage, std::vector<at::Tensor> gradients) {
  stages_[stage].gradients = std::move(gradients);
  while (n_launched_ < order_.size() && stages_[order_[n_launched_]].gradients) {
    launch(order_[n_launched_++]);
  }
}

void ReplicaGradients::launch(int stage) {
  const c10::NoGradGuard no_grad;
  OfStage& of_stage = stages_[stage];
  for (const Flat& flat : of_stage.flats) {
    flat.tensor.zero_();
    auto offset = static_cast<std::int64_t>(flat.parameters.size());
    for (std::size_t i = 0; i < flat.parameters.size(); ++i) {
      const at::Tensor& gradient = (*of_stage.gradients)[flat.parameters[i]];
      if (gradient.defined()) {
        if (gradient.layout() != at::kStrided) {
          throw Error(ErrorCode::kInvalidArgument,
                      "stage " + std::to_string(stage) +
                          " has a sparse gradient, which replicas can't average: build the layer "
                          "with sparse(false)");
        }
        flat.tensor[static_cast<std::int64_t>(i)].fill_(1);
        flat.tensor.narrow(0, offset, gradient.numel()).view(gradient.sizes()).copy_(gradient);
      }
      offset += parameters_[stage][flat.parameters[i]].numel();
    }
    const std::string label = "gradients of stage " + std::to_string(stage);
    const Work work = with_label("all_reduce", label, [&] {
      return all_reduce_async(
          *group_, flat.tensor, {.op = kAvg, .timeout = timeout_, .label = label});
    });
    launched_.push_back({.label = label, .work = work});
  }
}

std::map<int, std::vector<at::Tensor>> ReplicaGradients::finish() {
  UNISONO_CHECK(n_launched_ == order_.size(), "a stage without gradients");
  for (const Launched& launched : launched_) {
    with_label("all_reduce", launched.label, [&] { launched.work.wait(); });
  }
  launched_.clear();
  n_launched_ = 0;
  const c10::NoGradGuard no_grad;
  std::map<int, std::vector<at::Tensor>> means;
  for (auto& [stage, of_stage] : stages_) {
    std::vector<at::Tensor> gradients = std::move(*of_stage.gradients);
    of_stage.gradients.reset();
    for (const Flat& flat : of_stage.flats) {
      auto offset = static_cast<std::int64_t>(flat.parameters.size());
      for (std::size_t i = 0; i < flat.parameters.size(); ++i) {
        const std::size_t place = flat.parameters[i];
        const at::Tensor& like = parameters_[stage][place];
        const at::Tensor mean = flat.tensor.narrow(0, offset, like.numel()).view(like.sizes());
        offset += like.numel();
        if (gradients[place].defined()) {
          gradients[place].copy_(mean);
        } else if (flat.tensor[static_cast<std::int64_t>(i)].item<double>() > 0) {
          gradients[place] = mean.clone();
        }
      }
    }
    means[stage] = std::move(gradients);
  }
  return means;
}

}  // namespace unisono::parallel
