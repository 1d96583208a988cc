#include "unisono/torch/ddp/logical_ranks/reduce_shards.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/Functions.h>

#include "unisono/base/error.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/tensor/collectives.h"

namespace unisono::ddp {
namespace {

std::vector<std::vector<ShardRange>> nodes_of_ranks(int world_size, int n_shards) {
  std::vector<std::vector<ShardRange>> of_ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    of_ranks.push_back(nodes_of(shards_of(rank, world_size, n_shards), n_shards));
  }
  return of_ranks;
}

// The tree's root, of `blocks[rank][node]`.
at::Tensor combine(const std::vector<std::vector<ShardRange>>& of_ranks,
                   const at::Tensor& blocks,
                   int n_shards) {
  std::vector<ShardRange> inputs;
  std::vector<at::Tensor> values;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (std::size_t node = 0; node < of_ranks[rank].size(); ++node) {
      inputs.push_back(of_ranks[rank][node]);
      values.push_back(blocks[static_cast<std::int64_t>(rank)][static_cast<std::int64_t>(node)]);
    }
  }
  for (const auto& step : collective::reduce_steps(inputs, {.lo = 0, .hi = n_shards})) {
    values.push_back(at::add(values[static_cast<std::size_t>(step.lhs)],
                             values[static_cast<std::size_t>(step.rhs)]));
  }
  return values.back();
}

}  // namespace

// Each rank adds up a slice of the tensor.
BucketWork reduce_shards(ProcessGroup& group,
                         const std::vector<at::Tensor>& nodes,
                         const at::Tensor& sum,
                         const ReduceShardsOptions& options) {
  const std::int64_t world_size = group.world_size();
  const std::vector<std::vector<ShardRange>> of_ranks =
      nodes_of_ranks(group.world_size(), options.n_shards);
  UNISONO_CHECK(of_ranks[static_cast<std::size_t>(group.rank())].size() == nodes.size(),
                "a rank has other nodes than its shards have");
  std::size_t most = 0;
  for (const std::vector<ShardRange>& of_rank : of_ranks) {
    most = std::max(most, of_rank.size());
  }
  const std::int64_t slice = (sum.numel() + world_size - 1) / world_size;
  const at::Tensor sent =
      at::zeros({world_size, static_cast<std::int64_t>(most), slice}, sum.options());
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const at::Tensor padded =
        at::constant_pad_nd(nodes[node], {0, world_size * slice - sum.numel()});
    sent.select(1, static_cast<std::int64_t>(node)).copy_(padded.view({world_size, slice}));
  }
  const at::Tensor blocks = at::empty_like(sent);
  const int n_shards = options.n_shards;
  const AllGatherOptions gather_options{.timeout = options.timeout, .label = options.label};
  return {.work = all_to_all_async(
              group, sent, blocks, {.timeout = options.timeout, .label = options.label}),
          .then = [&group, of_ranks, blocks, sum, n_shards, slice, gather_options]() -> BucketWork {
            const at::Tensor own = combine(of_ranks, blocks, n_shards).contiguous();
            const at::Tensor gathered = at::empty({group.world_size() * slice}, sum.options());
            return {.work = all_gather_async(group, own, gathered, gather_options),
                    .then = [sum, gathered]() -> BucketWork {
                      sum.copy_(gathered.narrow(0, 0, sum.numel()));
                      return {};
                    }};
          }};
}

void finish(BucketWork work) {
  work.work.wait();
  while (work.then) {
    work = std::exchange(work.then, {})();
    work.work.wait();
  }
}

}  // namespace unisono::ddp
