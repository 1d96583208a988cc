#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/ddp/logical_ranks/shard_sums.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// The gradients of this rank's shards of a step: what the reducer of a model with logical ranks
/// has beside its buckets.
class ShardGradients {
 public:
  /// `parameters` must outlive the object. Throws Error(kInvalidArgument) for parameters whose sums
  /// would be rounded between shards (of 16 bits), and for more ranks than shards.
  ShardGradients(const ProcessGroup& group,
                 const std::vector<NamedTensor>& parameters,
                 int n_shards);

  /// Throws Error(kInvalidArgument) for parameters whose sums would be rounded between shards.
  static void check_types(const std::vector<NamedTensor>& parameters);

  [[nodiscard]] int n_shards() const { return n_shards_; }

  /// The shard's pass comes, with no gradients yet.
  void begin_shard(int shard);

  /// A backward pass begins. Throws Error(kInvalidArgument) unless it is the shard's first.
  void count_pass();

  /// Keeps the gradients unless the shard is this rank's last, whose go into the buckets. Throws
  /// Error(kInvalidArgument) when the shard had no pass.
  void end_shard();

  /// Adds earlier shards' gradients of the parameter to the last shard's.
  void add_earlier(std::size_t parameter, const at::Tensor& gradient) const;

  /// Whether an earlier shard has a gradient of the parameter.
  [[nodiscard]] bool has(std::size_t parameter) const { return sums_.has(parameter); }

  /// The last shard's buckets have all that was kept.
  void forget_sums();

  /// The step ends here.
  void give_up();

  /// What adds up the ranks' sums where an all_reduce of the buckets does not come to the canonical
  /// tree over all shards; else none.
  [[nodiscard]] CommHook make_hook(const std::shared_ptr<ProcessGroup>& group) const;

 private:
  static constexpr int kNone = -1;

  [[nodiscard]] std::vector<at::Tensor> nodes_of_bucket(const GradBucket& bucket) const;
  [[noreturn]] void fail(const std::string& problem) const;

  int rank_;
  int n_shards_;
  ShardRange own_;
  const std::vector<NamedTensor>& parameters_;
  std::map<const void*, std::size_t> indices_;  // of the parameters, by their tensors
  ShardSums sums_;
  int shard_ = kNone;  // the present one
  int n_passes_ = 0;
};

}  // namespace unisono::ddp
