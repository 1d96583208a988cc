#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

namespace unisono::parallel {

/// Means of stages' gradients over replicas, each begun as soon as its stage has them, in the same
/// order on all replicas.
class ReplicaGradients {
 public:
  /// `order`: the stages as they come to their ends in the schedule. `parameters`: what is trained
  /// of each.
  ReplicaGradients(std::shared_ptr<ProcessGroup> group,
                   std::vector<int> order,
                   const std::map<int, std::vector<at::Tensor>>& parameters,
                   std::optional<std::chrono::milliseconds> timeout);

  /// Stage `stage` has its gradients: one for each parameter, undefined for none.
  void add(int stage, std::vector<at::Tensor> gradients);

  /// Waits for all. Returns the means of each stage; undefined where no replica has a gradient.
  [[nodiscard]] std::map<int, std::vector<at::Tensor>> finish();

 private:
  /// Of the parameters of a type.
  struct Flat {
    at::Tensor tensor;  // The gradients, and for each whether there is one.
    std::vector<std::size_t> parameters;
  };

  struct OfStage {
    std::vector<Flat> flats;
    std::optional<std::vector<at::Tensor>> gradients = {};
  };

  struct Launched {
    std::string label;
    Work work;
  };

  void launch(int stage);

  std::shared_ptr<ProcessGroup> group_;
  std::vector<int> order_;
  std::map<int, std::vector<at::Tensor>> parameters_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::map<int, OfStage> stages_;
  std::size_t n_launched_ = 0;
  std::vector<Launched> launched_;
};

}  // namespace unisono::parallel
