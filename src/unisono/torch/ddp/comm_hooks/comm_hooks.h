#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

/// Compression losses of this rank's gradients, to be added to the next gradients. Stored by
/// parameter, so that the losses survive the rebuilding of buckets. Owned by the state of a hook.
/// Not thread-safe.
class ErrorMemory {
 public:
  /// Adds the losses to the bucket's gradients.
  void add_to(const GradBucket& bucket) const;

  /// Stores the losses of a bucket. `error` has the layout of the bucket's buffer; the object keeps
  /// views of the tensor.
  void keep(const GradBucket& bucket, const at::Tensor& error);

 private:
  std::unordered_map<const at::TensorImpl*, at::Tensor> errors_;
};

}  // namespace unisono::ddp

namespace unisono {

// Hooks that need no state but the process group, for
// DistributedDataParallel::register_comm_hook().

/// Averages the bucket by an all_reduce, as without a hook. A base for other hooks.
BucketWork allreduce_hook(ProcessGroup& group, const GradBucket& bucket);

/// Sends gradients as 16-bit floats: half the bytes, values up to 65504 with 11 significant bits.
/// The sum over ranks is computed in 32 bits and rounded once. 16-bit and complex gradients are
/// sent unchanged.
BucketWork fp16_compress_hook(ProcessGroup& group, const GradBucket& bucket);

/// Sends gradients as bfloat16: the full range of float with 8 significant bits. Otherwise like
/// fp16_compress_hook().
BucketWork bf16_compress_hook(ProcessGroup& group, const GradBucket& bucket);

/// State of top_k_hook() between passes, for a single model. Owned by the DistributedDataParallel
/// that the hook is registered with. Used by a single backward pass at a time.
class TopKState {
 public:
  /// `ratio` is the fraction of a bucket's gradients that is sent, at least one gradient; equal on
  /// every rank. Throws Error(kInvalidArgument) unless `ratio` is above 0 and at most 1.
  TopKState(std::shared_ptr<ProcessGroup> group, double ratio);

 private:
  friend BucketWork top_k_hook(TopKState& state, const GradBucket& bucket);

  std::shared_ptr<ProcessGroup> group_;
  double ratio_;
  ddp::ErrorMemory errors_;
};

/// Each rank sends the gradients of largest magnitude with positions; the mean over ranks is
/// computed from these. Unsent gradients are added to the rank's next gradients, so that no
/// contribution is lost. Each sent gradient needs 4 additional bytes, so traffic shrinks only for
/// ratios below 1 / world size. Complex gradients are averaged without compression.
///
/// Source: Lin, Han, Mao, Wang and Dally, "Deep gradient compression", ICLR 2018.
BucketWork top_k_hook(TopKState& state, const GradBucket& bucket);

/// State of post_local_sgd_hook(). Names follow PyTorch. Every rank passes equal values.
struct PostLocalSgdState {
  /// All ranks.
  std::shared_ptr<ProcessGroup> group;
  /// Ranks that continue to average gradients, for example the ranks of a node. Null: gradients
  /// stay local.
  std::shared_ptr<ProcessGroup> subgroup = {};
  /// Number of initial backward passes that are averaged over all ranks.
  std::int64_t start_local_sgd_iter = 0;
  /// Number of passes so far.
  std::int64_t n_passes = 0;
};

/// Averages gradients over all ranks in the first passes, later over the subgroup only. The ranks'
/// models then differ; a PeriodicModelAverager averages the models after every few steps.
///
/// Source: Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020.
BucketWork post_local_sgd_hook(PostLocalSgdState& state, const GradBucket& bucket);

/// Averages the parameters' values over the ranks of a group every `period` steps, starting at step
/// `warmup_steps`, as PyTorch's PeriodicModelAverager does. Not thread-safe.
class PeriodicModelAverager {
 public:
  /// Throws Error(kInvalidArgument) for a null group, a period below 1 or negative warm-up steps.
  PeriodicModelAverager(std::shared_ptr<ProcessGroup> group,
                        std::int64_t period,
                        std::int64_t warmup_steps = 0);

  /// Called after each step of the optimizer on every rank. A collective operation in the steps
  /// that average.
  void average_parameters(const std::vector<at::Tensor>& parameters);

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::int64_t period_;
  std::int64_t warmup_steps_;
  std::int64_t n_steps_ = 0;
};

/// Number format of gradients in transit. Blocks of 128 8-bit numbers share a scale.
enum class QuantizedType : std::uint8_t {
  kBFloat16,  ///< 16 bits: error up to 1/256 of each gradient.
  kInt8,   ///< 254 equal steps over the block's range: error up to 1/254 of the largest magnitude.
  kFloat8  ///< E4M3: error up to 1/16 of each gradient, including small ones.
};

/// State of quantize_hook() between passes, for a single model.
///
/// Owned by the DistributedDataParallel that the hook is registered with. If there are several
/// nodes and some node has several ranks, the state owns a group of this node's ranks, which the
/// destructor leaves. Used by a single backward pass at a time.
class QuantizeState {
 public:
  /// A collective operation of the group. Throws Error(kInvalidArgument) for a null group.
  QuantizeState(std::shared_ptr<ProcessGroup> group, QuantizedType type);

 private:
  friend class QuantizePass;
  friend BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket);

  // Range of chunks; a rank sends the node's sums of these chunks on behalf of the node.
  struct CarriedChunks {
    int begin;
    int end;
  };

  std::shared_ptr<ProcessGroup> group_;
  QuantizedType type_;
  int n_nodes_ = 1;
  std::vector<CarriedChunks> carried_;  // by rank
  std::vector<int> node_ranks_;         // ascending
  std::shared_ptr<ProcessGroup> node_;  // group of node_ranks_ if used; otherwise null
  ddp::ErrorMemory errors_;
};

/// Averages gradients that travel between nodes as 16-bit or 8-bit numbers: half or a quarter of
/// the bytes, for any number of nodes and ranks.
///
/// The ranks of a node first add the gradients in 32 bits. Each rank then receives the quantized
/// sums of all nodes for one chunk of the bucket, averages the sums in 32 bits and sends the
/// quantized mean to all ranks. The bits are equal on all ranks. The losses of sums and means are
/// added to the next gradients. On a single node, and for complex gradients, allreduce_hook() is
/// used, which is lossless.
BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket);

/// Names and defaults follow PyTorch. Every rank passes equal options.
struct PowerSgdOptions {
  /// Number of columns of the factors. More columns lose less and cost more time.
  std::int64_t matrix_approximation_rank = 1;
  /// Number of initial backward passes without compression: gradients change most at the beginning.
  /// At least 2 with error feedback or warm start, because buckets change after the first pass.
  std::int64_t start_power_sgd_iter = 1000;
  /// A matrix is compressed only if compression reduces the number of elements by more than this
  /// factor.
  double min_compression_rate = 2;
  /// Adds the compression loss of a gradient to the next gradient.
  bool use_error_feedback = true;
  /// Starts each pass from the factors of the previous pass, unless those overflowed.
  bool warm_start = true;
  /// Added to the norm of each column before the division. A column of zeros (no gradient arrived)
  /// needs a positive value: otherwise its gradients become NaN.
  double orthogonalization_epsilon = 0;
  /// Seed of the first factors, equal on every rank.
  std::uint32_t random_seed = 0;
};

/// State of power_sgd_hook() between passes, for a single model. Owned by the
/// DistributedDataParallel that the hook is registered with. Used by a single backward pass at a
/// time.
class PowerSgdState {
 public:
  /// Throws Error(kInvalidArgument) for unusable options.
  explicit PowerSgdState(std::shared_ptr<ProcessGroup> group, const PowerSgdOptions& options = {});

  /// Number of gradient elements so far, and the number of elements sent for them. Passes without
  /// compression are not counted.
  [[nodiscard]] std::int64_t n_elems_before() const { return n_elems_before_; }

  [[nodiscard]] std::int64_t n_elems_after() const { return n_elems_after_; }

 private:
  friend class PowerSgdPass;
  friend BucketWork power_sgd_hook(PowerSgdState& state, const GradBucket& bucket);

  std::shared_ptr<ProcessGroup> group_;
  PowerSgdOptions options_;
  std::mt19937 random_;  // the same numbers on every rank
  std::int64_t n_passes_ = 0;
  std::int64_t n_elems_before_ = 0;
  std::int64_t n_elems_after_ = 0;
  ddp::ErrorMemory errors_;
  std::map<std::size_t, at::Tensor> right_factors_;  // by bucket
};

/// Sends each gradient matrix M, of a parameter of two dimensions or more, as narrow factors P and
/// Q of M = P Q^T. P is the sum over ranks of M Q, orthogonalized; Q is the mean over ranks of M^T
/// P. Other gradients are averaged without compression. The results equal those of PyTorch's
/// powerSGD_hook.
///
/// Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for
/// distributed optimization", NeurIPS 2019.
BucketWork power_sgd_hook(PowerSgdState& state, const GradBucket& bucket);

}  // namespace unisono
