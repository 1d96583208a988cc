#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "unisono/pipeline/schedule.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace unisono::testing {

/// Tensors by their names in the whole model.
using Named = std::map<std::string, torch::Tensor>;

/// Returns 12 layers of different kinds, from 6 features to 3, with the same values on all ranks.
torch::nn::Sequential make_chain(torch::Dtype dtype = torch::kFloat32, double dropout = 0);

/// Returns five layers of 6 features. The last layer shares the weights of the first.
torch::nn::Sequential make_tied_chain();

/// Sets every parameter to values that depend only on its position, equal on all ranks.
void fill(torch::nn::Module& module);

torch::Tensor make_batch(std::int64_t n, torch::Dtype dtype = torch::kFloat32);
torch::Tensor make_targets(std::int64_t n);

/// Returns the mean cross entropy.
torch::Tensor loss_of_classes(const torch::Tensor& output, const torch::Tensor& target);

/// Computes the chunks one after the other in one process. Leaves the gradients in the model and
/// returns the mean loss.
double run_chunks(torch::nn::Sequential& model,
                  const torch::Tensor& batch,
                  const torch::Tensor& targets,
                  int n_chunks);

Named gradients_of(const std::vector<NamedTensor>& parameters);
Named gradients_of(const torch::nn::Sequential& model);

/// Returns "" if each of `some` has the same bits in `all`; otherwise describes the difference.
std::string difference(const Named& some, const Named& all);

/// Returns the largest difference of any tensor of `some`, relative to the tensor's largest element
/// in `all`.
double relative_difference(const Named& some, const Named& all);

/// Returns the names of all schedules.
std::vector<std::string> all_schedules();

}  // namespace unisono::testing
