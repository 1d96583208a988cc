#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace unisono {

/// Policy for gradients with an infinity or NaN on any rank.
enum class NonFiniteGradients : std::uint8_t {
  kAllow,  ///< No check: all ranks receive the averages as they are.
  kThrow,  ///< backward() throws on all ranks; no parameter has a gradient.
  kSkip    ///< All ranks drop the pass's gradients, so that optimizers skip the step.
};

/// Policy for parameters that are no longer equal, bit for bit, on all ranks, because a state was
/// loaded on some ranks only or the ranks make different steps.
enum class ParameterDrift : std::uint8_t {
  kIgnore,  ///< No comparison.
  kWarn,    ///< Rank 0 warns once, with the first parameter and two ranks.
  kThrow    ///< backward() throws on all ranks, with the first parameter and two ranks.
};

/// Policy for a module's buffers (running means of batch norm, ...) in a step with several shards.
/// Each shard starts with the buffers from the start of the step.
enum class ShardBuffers : std::uint8_t {
  kFirstShard,  ///< Buffers of the first shard, like rank 0's buffers in plain data
                ///< parallelism.
  /// The mean over all shards for f32 and f64 buffers; the first shard's values for other buffers.
  kMean
};

/// Names and defaults follow PyTorch. Every rank passes equal options.
struct DistributedDataParallelOptions {
  /// Number of the device that holds the module, and of the outputs' device. For modules on an
  /// accelerator, as in PyTorch, where the module's device decides without these options as well:
  /// modules in CPU memory, or on another device, are refused.
  std::vector<int> device_ids = {};
  /// Number of the outputs' device.
  std::optional<int> output_device = {};
  /// Approximate size of a bucket, in MiB.
  double bucket_cap_mb = 25;
  /// Size of the first bucket in MiB. Smaller, so that communication starts early in backward.
  double first_bucket_cap_mb = 1;
  /// Copy rank 0's buffers (running means of batch norm, ...) to all ranks before a forward pass
  /// that follows a forward pass in training mode.
  bool broadcast_buffers = true;
  /// Allow parameters that a backward pass does not reach. Costs one additional small all_reduce,
  /// and reduces overlap if a bucket waits for an absent gradient until the end of backward.
  bool find_unused_parameters = false;
  /// Timeout of each operation; by default the group's timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Policy for gradients with an infinity or NaN, applied before parameters receive the gradients.
  /// The message names ranks and parameters. Costs a pass over the gradients' memory.
  NonFiniteGradients non_finite_gradients = NonFiniteGradients::kAllow;
  /// Gradients are means over the samples of all ranks. Steps are made by run_step(), to which each
  /// rank passes its number of samples. Ranks may have different numbers of samples and of batches.
  bool weigh_samples = false;
  /// Number V of shards of each global batch, on any number of ranks up to V. Training then gives
  /// the same bits for any number of ranks (see for_each_shard()). 0: each rank's batch is a shard.
  int logical_ranks = 0;
  /// Seed for random operations in a shard, such as dropout, with logical_ranks.
  std::uint64_t shard_seed = 0;
  /// Policy for the module's buffers with logical_ranks.
  ShardBuffers shard_buffers = ShardBuffers::kFirstShard;
  /// Policy for parameters that are no longer equal on all ranks. Each backward pass compares 1/128
  /// of the parameters (all of a small model) at the end of the last bucket; a state that was
  /// loaded on one rank only is detected in the next pass. No comparison with a communication hook,
  /// under join(), or in passes under no_sync().
  ParameterDrift parameter_drift = ParameterDrift::kWarn;
};

/// Names and defaults follow PyTorch. Every rank passes equal options.
struct JoinOptions {
  /// true: gradients are divided by the number of all ranks. false: by the number of ranks that
  /// still have batches. Use true if a communication hook leaves gradients local, as
  /// post_local_sgd_hook() does: with false the local gradients are scaled as well.
  bool divide_by_initial_world_size = true;
  /// If a rank has no batches left, all ranks throw Error(kMismatch) instead of continuing without
  /// that rank.
  bool throw_on_early_termination = false;
};

}  // namespace unisono
