#include "unisono/torch/parallel/tensor/embedding.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/initial_values.h"
#include "unisono/torch/parallel/tensor/linear.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/parallel/tensor/regions.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& to_use,
                                                       std::shared_ptr<ProcessGroup> group,
                                                       const at::Generator& generator)
    : ParallelLayer("VocabParallelEmbedding", std::move(group)), options(to_use) {
  (void)share_of("embeddings", options.num_embeddings);
  if (options.embedding_dim <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer() + ": embeddings of " + std::to_string(options.embedding_dim) +
                    " elements; there must be one at least");
  }
  const Split rows{.dim = 0};
  weight = register_parameter(
      "weight",
      part_of(draw_normal({options.num_embeddings, options.embedding_dim}, generator),
              rows,
              this->group()->rank(),
              this->group()->world_size()));
  place("weight", {.split = rows});
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& ids) {
  const auto refuse = [&](const std::string& problem) { return group()->refuse(layer(), problem); };
  if (!ids.defined() || (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt)) {
    throw refuse("ids are " + (ids.defined() ? describe(ids) : std::string("undefined")) +
                 "; they must be i64 or i32");
  }
  if (ids.numel() > 0) {
    const auto lowest = ids.min().item<std::int64_t>();
    const auto highest = ids.max().item<std::int64_t>();
    if (lowest < 0 || highest >= options.num_embeddings) {
      throw refuse("id " + std::to_string(lowest < 0 ? lowest : highest) +
                   " is outside the vocabulary of " + std::to_string(options.num_embeddings));
    }
  }
  const std::int64_t n_mine = weight.size(0);
  const at::Tensor local = ids - group()->rank() * n_mine;
  const at::Tensor is_elsewhere = local.lt(0).logical_or_(local.ge(n_mine));
  const at::Tensor found = at::embedding(weight, local.masked_fill(is_elsewhere, 0))
                               .masked_fill(is_elsewhere.unsqueeze(-1), 0);
  return options.sequence_parallel ? reduce_scatter_from_region(found, kSequenceDim, group())
                                   : reduce_from_region(found, group());
}

}  // namespace unisono::parallel
