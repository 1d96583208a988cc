#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// The device for a rank, by its number among those of its node: cuda:local_rank, from cuda:0 again
/// where there are more ranks than GPUs; cpu where there are none.
[[nodiscard]] Device device_of_local_rank(int local_rank, int n_gpus);

/// This process's number among the ranks of its node, as LOCAL_RANK says, or else the variable of
/// the launcher; nothing where neither is set.
///
/// Throws Error(kInvalidArgument) where the value is no such number, with variable and value.
[[nodiscard]] std::optional<int> own_local_rank(const Environment& environment);

/// Which of a node's ranks have the same GPU, for a warning: "local ranks 0 and 2 both use cuda:0,
/// ..."; empty where none do.
[[nodiscard]] std::string describe_shared_gpus(int n_local_ranks, int n_gpus);

/// Which ranks have the same GPU, where that is an error, as for NCCL: "ranks 0 and 1 are both on
/// cuda:0: ..."; empty where none do. `devices` are of the ranks of one node, the first of which is
/// `first_rank`.
[[nodiscard]] std::string explain_same_gpu(const std::vector<Device>& devices, int first_rank);

/// "cpu", "cuda:3".
[[nodiscard]] std::string describe(const Device& device);

}  // namespace unisono::rendezvous
