// Parts of the loops of the examples that train with LibTorch.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

namespace examples {

/// Calls `action()` and returns the result. If the call throws on some ranks, every rank throws the
/// error of the lowest of these ranks. A collective operation.
template <class Action>
auto on_every_rank(unisono::ProcessGroup& group, const Action& action) {
  std::optional<decltype(action())> result;
  std::string problem;
  try {
    result.emplace(action());
  } catch (const std::exception& error) {
    problem = unisono::error_text(error);
  }
  for (const std::string& message : unisono::all_gather_object(group, problem)) {
    if (!message.empty()) {
      throw std::runtime_error(message);
    }
  }
  return std::move(*result);
}

/// Returns the sum of all ranks' `sum` divided by the sum of all ranks' `count`. A collective
/// operation.
inline double mean_over_ranks(unisono::ProcessGroup& group, double sum, double count) {
  std::vector<double> sums{sum, count};
  group.all_reduce(unisono::as_buffer(std::span(sums)));
  return sums[0] / sums[1];
}

/// Returns the batch of a unisono::DataLoader as tensors, without a copy.
inline unisono::BatchTensors as_tensors(unisono::data::Batch batch) {
  return unisono::as_tensors(std::move(batch));
}

/// Returns copies of a batch of texts as tensors; `samples` has the tokens, [texts, tokens].
inline unisono::BatchTensors as_tensors(const unisono::datasets::PaddedBatch& batch) {
  return {.samples = at::tensor(batch.tokens, at::kLong).view({batch.size(), batch.longest}),
          .labels = at::tensor(batch.labels, at::kLong)};
}

/// Trains on the batches of a started loader and returns the mean loss of this rank.
///
/// `backward(samples, labels)` computes the gradients of a batch and returns the loss, a tensor of
/// one element.
template <class Backward>
double train_epoch(unisono::DataLoader& loader,
                   torch::optim::Optimizer& optimizer,
                   unisono::report::Progress& progress,
                   int n_ranks,
                   const Backward& backward) {
  double loss_sum = 0;
  while (std::optional<unisono::data::Batch> batch = loader.next()) {
    const auto [samples, labels] = unisono::as_tensors(std::move(*batch));
    optimizer.zero_grad();
    const double loss = backward(samples, labels).template item<double>();
    optimizer.step();
    loss_sum += loss;
    progress.step({{"loss", loss}}, samples.size(0) * n_ranks);
  }
  return loss_sum / static_cast<double>(loader.n_batches());
}

/// Returns the accuracy of `forward(samples)` on the batches of all ranks' started loaders, from 0
/// to 1. A collective operation.
///
/// Batches for which `forward` returns an undefined tensor do not count.
template <class Loader, class Forward>
double test_accuracy(unisono::ProcessGroup& group, Loader& loader, Forward&& forward) {
  const torch::NoGradGuard no_grad;
  double n_correct = 0;
  double n_tested = 0;
  while (auto batch = loader.next()) {
    const auto [samples, labels] = as_tensors(std::move(*batch));
    const at::Tensor scores = forward(samples);
    if (scores.defined()) {
      n_correct += scores.argmax(1).eq(labels).sum().template item<double>();
      n_tested += static_cast<double>(labels.size(0));
    }
  }
  return mean_over_ranks(group, n_correct, n_tested);
}

}  // namespace examples
