#include "unisono/torch/ddp/features/sparse_gradients.h"

#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <torch/nn/modules/embedding.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

using Timeout = std::optional<std::chrono::milliseconds>;

// Rows of a tensor: row numbers and elements.
struct Rows {
  at::Tensor numbers;
  at::Tensor elements;
};

// Returns the number of elements of one row.
std::int64_t row_size(const at::Tensor& parameter) {
  const at::IntArrayRef sizes = parameter.sizes().slice(1);
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Returns the gradient's rows sorted by number, each once, in CPU memory.
Rows rows_of(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (!gradient.defined()) {
    return {.numbers = at::empty({0}, at::kLong),
            .elements = at::empty({0, row_size(parameter)}, parameter.scalar_type())};
  }
  const at::Tensor sparse =
      (gradient.layout() == at::kStrided ? gradient.to_sparse(1) : gradient).coalesce();
  return {.numbers = sparse.indices().reshape({-1}).contiguous().cpu(),
          .elements = sparse.values().reshape({-1, row_size(parameter)}).contiguous().cpu()};
}

at::Tensor as_sparse(const Rows& rows, const at::Tensor& parameter, at::ScalarType type) {
  std::vector<std::int64_t> sizes = parameter.sizes().vec();
  sizes.front() = rows.numbers.numel();
  return at::sparse_coo_tensor(
             rows.numbers.unsqueeze(0), rows.elements.to(type).view(sizes), parameter.sizes())
      ._coalesced_(true);
}

// Sums in the order of the canonical tree: see ProcessGroup::all_reduce.
at::Tensor sum_of(std::span<const at::Tensor> of_ranks) {
  if (of_ranks.size() == 1) {
    return of_ranks.front();
  }
  const std::size_t middle = std::bit_floor(of_ranks.size() - 1);
  return sum_of(of_ranks.first(middle)).add(sum_of(of_ranks.subspan(middle))).coalesce();
}

std::vector<std::int64_t> gather_counts(ProcessGroup& group,
                                        std::vector<std::int64_t> mine,
                                        const Timeout& timeout) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.world_size()));
  group.all_gather(as_buffer(std::span(mine)),
                   as_buffer(std::span(all)),
                   {.timeout = timeout, .label = "rows of sparse gradients"});
  return all;
}

Rows gather_rows(ProcessGroup& group,
                 const Rows& mine,
                 const std::vector<std::int64_t>& counts,
                 const std::string& name,
                 const Timeout& timeout) {
  const std::int64_t n_rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t size = mine.elements.size(1);
  Rows all{.numbers = at::empty({n_rows}, at::kLong),
           .elements = at::empty({n_rows, size}, mine.elements.scalar_type())};
  group.all_gather(as_buffer(mine.numbers),
                   as_buffer(all.numbers),
                   {.counts = counts, .timeout = timeout, .label = "rows of '" + name + "'"});
  std::vector<std::int64_t> n_elems = counts;
  for (std::int64_t& count : n_elems) {
    count *= size;
  }
  group.all_gather(as_buffer(mine.elements),
                   as_buffer(all.elements),
                   {.counts = n_elems, .timeout = timeout, .label = "gradient of '" + name + "'"});
  return all;
}

at::Tensor mean_of(const Rows& all,
                   const std::vector<std::int64_t>& counts,
                   const at::Tensor& parameter,
                   double divisor) {
  // 16-bit numbers are accumulated in f32 and rounded once, at the end.
  const at::ScalarType type = parameter.scalar_type();
  const at::ScalarType wide = type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  std::vector<at::Tensor> of_ranks;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    const Rows rows{.numbers = all.numbers.narrow(0, begin, count),
                    .elements = all.elements.narrow(0, begin, count)};
    of_ranks.push_back(as_sparse(rows, parameter, wide));
    begin += count;
  }
  const at::Tensor sum = sum_of(of_ranks);
  const at::Tensor mean = sum.values().div(divisor).to(type);
  return at::sparse_coo_tensor(sum.indices(), mean, parameter.sizes())._coalesced_(true);
}

template <class Layer>
void append_if_sparse(const ::torch::nn::Module& module, std::vector<at::Tensor>& weights) {
  if (const auto* const layer = dynamic_cast<const Layer*>(&module)) {
    if (layer->options.sparse()) {
      weights.push_back(layer->weight);
    }
  }
}

// Returns, for each parameter, the sum of the gradients over the ranks divided by `divisor`. The
// result is sparse and has the rows that any rank has; its elements have the bits of an all_reduce
// of dense gradients. `gradients` may be sparse, dense, or undefined (no rows). A collective
// operation that gathers the rows of all ranks.
std::vector<at::Tensor> average_sparse(ProcessGroup& group,
                                       const std::vector<NamedTensor>& parameters,
                                       const std::vector<at::Tensor>& gradients,
                                       double divisor,
                                       Timeout timeout) {
  std::vector<Rows> mine;
  std::vector<std::int64_t> my_counts;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    mine.push_back(rows_of(gradients[i], parameters[i].tensor));
    my_counts.push_back(mine.back().numbers.numel());
  }
  const std::vector<std::int64_t> all_counts = gather_counts(group, my_counts, timeout);
  std::vector<at::Tensor> means;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::int64_t> counts;
    for (std::size_t at = i; at < all_counts.size(); at += parameters.size()) {
      counts.push_back(all_counts[at]);
    }
    const Rows all = gather_rows(group, mine[i], counts, parameters[i].name, timeout);
    means.push_back(mean_of(all, counts, parameters[i].tensor, divisor));
  }
  return means;
}

// Duplicate rows are summed before the multiplication, so that the roundings equal those of a dense
// gradient.
at::Tensor weighted(const at::Tensor& gradient, std::int64_t weight) {
  if (!gradient.defined() || weight == 1) {
    return gradient;
  }
  return (gradient.is_sparse() ? gradient.coalesce() : gradient).mul(weight);
}

}  // namespace

std::vector<at::Tensor> sparse_parameters(const ::torch::nn::Module& module) {
  std::vector<at::Tensor> weights;
  append_if_sparse<::torch::nn::EmbeddingImpl>(module, weights);
  append_if_sparse<::torch::nn::EmbeddingBagImpl>(module, weights);
  for (const std::shared_ptr<::torch::nn::Module>& child : module.children()) {
    const std::vector<at::Tensor> of_child = sparse_parameters(*child);
    weights.insert(weights.end(), of_child.begin(), of_child.end());
  }
  return weights;
}

void SparseGradients::adjust(std::size_t parameter, const at::Tensor& gradient) {
  const auto& [name, tensor, other_names] = context_.parameters[parameter];
  if (context_.is_sparse[parameter] && gradient.defined() &&
      (gradient.scalar_type() != tensor.scalar_type() || gradient.sizes() != tensor.sizes() ||
       (gradient.is_sparse() && gradient.sparse_dim() != 1))) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient of parameter '" + name + "' is " + describe(gradient) +
                    ", but the parameter is " + describe(tensor) +
                    "; a sparse gradient has its type and sizes, and some of its rows");
  }
}

// All ranks pass the same parameters; a rank without a batch passes undefined gradients.
void SparseGradients::end_pass(PassResult& result) {
  const GradientWeights& weights = context_.weights;
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < context_.parameters.size() && !result.is_dropped; ++i) {
    if (context_.is_sparse[i] && context_.uses(i)) {
      const NamedTensor& parameter = context_.parameters[i];
      parameters.push_back(parameter);
      gradients.push_back(result.is_shadow ? at::Tensor()
                                           : weighted(parameter.tensor.grad(), weights.own));
    }
  }
  if (parameters.empty()) {
    return;
  }
  const auto divisor =
      static_cast<double>(weights.is_summed ? weights.divisor : context_.group->world_size());
  std::vector<at::Tensor> means;
  explain_uneven_inputs([&] {
    means =
        average_sparse(*context_.group, parameters, gradients, divisor, context_.options.timeout);
  });
  for (std::size_t i = 0; i < parameters.size() && !result.is_shadow; ++i) {
    if (weights.factor != 1) {
      means[i].mul_(weights.factor);
    }
    parameters[i].tensor.mutable_grad() = means[i].to(parameters[i].tensor.device());
  }
}

}  // namespace unisono::ddp
