#include "canonical.h"

#include <bit>
#include <cstddef>
#include <functional>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/torch/tensor/hash.h"

namespace unisono::testing {
namespace {

at::Tensor tree_sum(const std::vector<at::Tensor>& values, std::size_t low, std::size_t high) {
  if (high - low == 1) {
    return values[low];
  }
  const std::size_t middle = low + std::bit_floor(high - low - 1);
  return tree_sum(values, low, middle).add(tree_sum(values, middle, high));
}

}  // namespace

at::Tensor canonical_sum(const std::vector<at::Tensor>& of_ranks) {
  const c10::NoGradGuard no_grad;
  return tree_sum(of_ranks, 0, of_ranks.size());
}

at::Tensor canonical_mean(const std::vector<at::Tensor>& of_ranks) {
  const c10::NoGradGuard no_grad;
  return canonical_sum(of_ranks).div(static_cast<double>(of_ranks.size()));
}

std::vector<at::Tensor> clone_all(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
  }
  return copies;
}

std::vector<at::Tensor> clone_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
  }
  return clone_all(gradients);
}

bool is_bit_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() && hash_tensors(a) == hash_tensors(b);
}

void accumulate_shards(const std::vector<at::Tensor>& parameters,
                       int n_shards,
                       const std::function<void(int shard)>& backward_of_shard) {
  std::vector<std::vector<at::Tensor>> of_shards;
  for (int shard = 0; shard < n_shards; ++shard) {
    for (const at::Tensor& parameter : parameters) {
      parameter.mutable_grad().reset();
    }
    backward_of_shard(shard);
    of_shards.push_back(clone_gradients(parameters));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<at::Tensor> gradients;
    for (const std::vector<at::Tensor>& of_shard : of_shards) {
      gradients.push_back(of_shard[i]);
    }
    parameters[i].mutable_grad() = canonical_mean(gradients);
  }
}

}  // namespace unisono::testing
