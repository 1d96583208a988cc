#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/random_state.h"

namespace torch::nn {
class Module;
}

namespace torch::serialize {
class OutputArchive;
}

namespace torch::optim {
class Optimizer;
}

namespace unisono {

/// Tensors by name: the part of a checkpoint that describes a model, an optimizer or a training.
using TensorState = std::map<std::string, at::Tensor>;

/// Adds each tensor of `from` under `prefix` + name. Throws Error(kInvalidArgument) for a name that
/// exists already.
void add_state(TensorState& into, const std::string& prefix, const TensorState& from);

/// Returns the tensors with names that begin with `prefix`, with the prefix removed.
[[nodiscard]] TensorState state_below(const TensorState& state, const std::string& prefix);

/// Returns true if two tensors of equal type and shape have the same bits, including NaNs.
[[nodiscard]] bool is_bit_equal(const at::Tensor& one, const at::Tensor& other);

/// Returns a single number as a tensor without axes.
[[nodiscard]] at::Tensor number_tensor(std::int64_t number);
[[nodiscard]] at::Tensor number_tensor(double number);

/// Returns the number that was saved under `name`. Throws Error(kInvalidArgument) if the name is
/// missing or the tensor is not a single i64 (integer_in) or f64 (real_in).
[[nodiscard]] std::int64_t integer_in(const TensorState& state, const std::string& name);
/// As integer_in(), for a number in f64.
[[nodiscard]] double real_in(const TensorState& state, const std::string& name);

/// Writes whole tensors to one safetensors file, which appears complete or not at all and which
/// Python loads by safetensors.torch.load_file(). Supports torch's 8-bit and 4-bit floats.
///
/// Throws Error(kSystem) if the folder is missing or the disk is full, and Error(kInvalidArgument)
/// for an empty name, a name that is not UTF-8, complex128 (not in the format), and tensors that
/// are sparse, quantized or on LibTorch's device "meta".
void save_state(const std::string& path, const TensorState& state);

/// Reads all tensors of any input of checkpoint::Reader: a file, the folder of one checkpoint, or a
/// folder of several checkpoints, of which latest_checkpoint() selects one. The checkpoint may be
/// written by any number of ranks, and by other programs than this library. The tensors have
/// separate memory. Throws the errors of the reader and of latest_checkpoint(), and
/// Error(kInvalidArgument) for a tensor of a type that torch lacks (the format's 6-bit floats).
[[nodiscard]] TensorState load_state(const std::string& path);
[[nodiscard]] TensorState load_state(checkpoint::Reader& reader);

/// Reads, on every rank, the checkpoint that rank 0 selects. A collective operation: if one rank
/// fails, all ranks throw the error with that rank in the message.
[[nodiscard]] TensorState load_state(ProcessGroup& group, const std::string& path);

/// Reads a part of a tensor in a checkpoint. Other parts are not read.
[[nodiscard]] at::Tensor read_part(checkpoint::Reader& reader,
                                   const std::string& name,
                                   const checkpoint::Box& box);

/// This rank's argument of checkpoint::save_checkpoint() or Saver. The bytes of the parts belong to
/// `tensors`, which share the memory of the given tensors if that memory is contiguous and on the
/// CPU. Of tensors on devices they are snapshots in page-locked memory, which save_async() does not
/// copy again: the training waits for the copy from the device only.
struct StateParts {
  std::vector<checkpoint::TensorPart> parts;
  std::vector<checkpoint::TensorInfo> common;  ///< Used to detect ranks with different tensors.
  std::vector<at::Tensor> tensors;
};

/// Divides `common`, which is equal on all ranks, into parts of about equal size, one for each
/// rank, and adds all of `own`, which has different names on each rank. A collective operation.
///
/// Throws Error(kInvalidArgument) under the conditions of save_state(), with the same message on
/// every rank, which names the rank of the tensor. The group stays usable.
[[nodiscard]] StateParts parts_to_save(ProcessGroup& group,
                                       const TensorState& common,
                                       const TensorState& own = {});

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
