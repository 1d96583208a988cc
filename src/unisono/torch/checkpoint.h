#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace torch::serialize {
class OutputArchive;
}

namespace unisono {

/// Writes an archive in LibTorch's format to `path`, the format of torch::save() and torch::load().
/// `fill` adds the contents. The file appears complete or not at all, and replaces an older file
/// only when complete.
///
/// Throws Error(kSystem) if the disk is full or the folder is missing or not writable; no partial
/// file is left.
void save_archive(const std::filesystem::path& path,
                  const std::function<void(torch::serialize::OutputArchive&)>& fill);

/// Writes the module's parameters and buffers, under their names in the module. A program without
/// unisono loads the file by torch::load(module, path), Python by
/// torch.jit.load(path).state_dict(). Errors: see save_archive().
void save_module(const torch::nn::Module& module, const std::filesystem::path& path);

/// Calls save_module() on rank 0. A collective operation: on return, the file exists. If rank 0
/// fails to write the file, every rank throws rank 0's error.
///
/// For a wrapped module pass `*model.module()`.
void save_on_rank_0(ProcessGroup& group,
                    const torch::nn::Module& module,
                    const std::filesystem::path& path);

/// Throws the errors that save_on_rank_0() would throw after the training, on every rank: a folder
/// that is missing or not writable. A collective operation; leaves no file.
void check_can_save_on_rank_0(ProcessGroup& group, const std::filesystem::path& path);

/// Throws rank 0's `error` on every rank; does nothing if rank 0 passes no error. The arguments of
/// other ranks are ignored. A collective operation, called after rank 0 has acted for all ranks.
void share_outcome(ProcessGroup& group,
                   const std::optional<Error>& error,
                   std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace unisono

namespace torch::nn {
class Module;
}

namespace torch::optim {
class Optimizer;
}

namespace unisono {

/// Returns the module's parameters and buffers, by name. The tensors share the module's memory:
/// make copies unless the state is saved immediately, as checkpoint::Saver does. A tensor with
/// several names appears under each name, as in Python's state_dict().
///
/// For a wrapped module pass `*model.module()`.
[[nodiscard]] TensorState module_state(const torch::nn::Module& module);

/// Copies the state into the module's parameters and buffers, in place. All names may begin with
/// "module.", as saved by Python's DistributedDataParallel.
///
/// For a tensor with several names, the state may contain any of the names, as in files of Python's
/// safetensors.torch.save_model(), or several names with equal values.
///
/// Throws Error(kInvalidArgument), without any change, unless the state has exactly the module's
/// names, types and shapes. The message lists names that are missing, superfluous or different.
void load_module_state(torch::nn::Module& module, const TensorState& state);

/// Returns the optimizer's options and the state of each parameter, under the parameters' names in
/// the module: "state.fc.weight.momentum_buffer", "options.0.lr". All tensors are copies in CPU
/// memory.
///
/// Supports any optimizer of LibTorch or unisono::optim. Throws Error(kInvalidArgument) for a
/// parameter that does not belong to the module, and for state that is neither a tensor nor a
/// number.
[[nodiscard]] TensorState optimizer_state(const torch::optim::Optimizer& optimizer,
                                          const torch::nn::Module& module);

/// Overload with names of the given parameters. For a parallel::Pipeline, whose ranks hold the
/// parameters of some stages only, pass `model.named_parameters()`.
[[nodiscard]] TensorState optimizer_state(const torch::optim::Optimizer& optimizer,
                                          const std::vector<NamedTensor>& parameters);

/// Restores the optimizer from a state that optimizer_state() returned.
///
/// Throws Error(kInvalidArgument), without any change, for the state of another kind of optimizer,
/// of other groups, of parameters with other names or shapes, or with different values under the
/// names of one parameter.
void load_optimizer_state(torch::optim::Optimizer& optimizer,
                          const torch::nn::Module& module,
                          const TensorState& state);
void load_optimizer_state(torch::optim::Optimizer& optimizer,
                          const std::vector<NamedTensor>& parameters,
                          const TensorState& state);

}  // namespace unisono
