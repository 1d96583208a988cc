#include "accuracy.h"

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "unisono/data/pad_to_longest.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "tensors.h"

namespace imdb {

double accuracy(const unisono::parallel::Mesh& mesh,
                unisono::parallel::Pipeline& model,
                Loader& loader,
                std::int64_t n_reviews) {
  loader.start(unisono::EvaluationSampler(n_reviews, *mesh.group("data")));
  model.eval();
  double n_correct = 0;
  std::int64_t n_tested = 0;
  while (const std::optional<unisono::PaddedBatch> padded = loader.next()) {
    const Batch batch = as_tensors(*padded);
    const at::Tensor scores = model.forward(batch.tokens);
    if (scores.defined()) {  // on the rank of the last part
      n_correct += scores.argmax(1).eq(batch.labels).sum().item<double>();
      n_tested += padded->size();
    }
  }
  return mean_over_ranks(*mesh.world(), n_correct, n_tested);
}

}  // namespace imdb
