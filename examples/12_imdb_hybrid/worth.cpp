#include "worth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "unisono/base/cores.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/gain.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "options.h"
#include "tensors.h"
#include "transformer.h"

namespace imdb {
namespace {

constexpr int kBatchTrials = 3;

double whole_batch_ms(torch::nn::Sequential net, const Batch& batch) {
  double best = std::numeric_limits<double>::infinity();
  for (int trial = 0; trial < kBatchTrials; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    loss_of(net->forward(batch.tokens), batch.labels).backward();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
    net->zero_grad();
  }
  return best;
}

}  // namespace

std::string is_pipeline_worth_it(const Options& options,
                                 unisono::parallel::Pipeline& model,
                                 unisono::ProcessGroup& pipe,
                                 std::int64_t ntokens,
                                 const Batch& batch) {
  const unisono::pipeline::Timeline timeline = model.timeline();
  std::string text;
  if (pipe.rank() == 0) {
    // Ranks of other pipelines that are on this node have their share of its cores.
    const int n_pipelines = std::max(1, pipe.local_world_size() / pipe.world_size());
    const unisono::pipeline::Gain gain = unisono::pipeline::gain_of(
        model.schedule(),
        timeline,
        {.n_devices = std::max(1, unisono::available_cores() / n_pipelines),
         .whole_batch = whole_batch_ms(make_net(options, ntokens), batch)});
    text = unisono::pipeline::describe(gain, "ms");
  }
  pipe.barrier();  // the others leave it the machine meanwhile
  return text;
}

}  // namespace imdb
