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

/// Layers of different kinds, 12 of them, from 6 numbers to 3; the same values whoever asks.
torch::nn::Sequential make_chain(torch::Dtype dtype = torch::kFloat32, double dropout = 0);

/// Five layers of 6 numbers, of which the last has the weights of the first.
torch::nn::Sequential make_tied_chain();

/// Gives every parameter values that follow from its place, whoever asks.
void fill(torch::nn::Module& module);

torch::Tensor make_batch(std::int64_t n, torch::Dtype dtype = torch::kFloat32);
torch::Tensor make_targets(std::int64_t n);

/// Mean cross entropy.
torch::Tensor loss_of_classes(const torch::Tensor& output, const torch::Tensor& target);

/// What one process computes that takes the chunks one after the other: leaves gradients in the
/// model, and returns the mean loss.
double run_chunks(torch::nn::Sequential& model,
                  const torch::Tensor& batch,
                  const torch::Tensor& targets,
                  int n_chunks);

Named gradients_of(const std::vector<NamedTensor>& parameters);
Named gradients_of(const torch::nn::Sequential& model);

/// "" where each of `some` has the same bits in `all`; else what differs.
std::string difference(const Named& some, const Named& all);

/// The largest difference of one of `some`, in parts of its largest element in `all`.
double relative_difference(const Named& some, const Named& all);

/// The names of all schedules.
std::vector<std::string> all_schedules();

}  // namespace unisono::testing
