#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

struct VocabParallelEmbeddingOptions {
  std::int64_t num_embeddings;  ///< Of the whole layer: a multiple of the ranks.
  std::int64_t embedding_dim;
  /// The output is this rank's part of the sequence; else every rank gets all of it.
  bool sequence_parallel = false;
};

/// torch::nn::Embedding whose rows are divided among the ranks.
///
/// forward() is a collective operation, of the same ids on all ranks. First values as those of
/// ColumnParallelLinear.
class VocabParallelEmbeddingImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) for a vocabulary that the ranks can't divide equally.
  VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& to_use,
                             std::shared_ptr<ProcessGroup> group,
                             const at::Generator& generator = {});

  /// `ids` are i64 or i32, of any shape; the output has a dimension more.
  ///
  /// Throws RefusedCall for an id outside the vocabulary.
  at::Tensor forward(const at::Tensor& ids);

  VocabParallelEmbeddingOptions options;
  at::Tensor weight;  ///< [num_embeddings / ranks, embedding_dim]
};

TORCH_MODULE(VocabParallelEmbedding);

}  // namespace unisono::parallel
