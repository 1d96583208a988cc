#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/random_state.h"

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
/// Python loads by safetensors.torch.load_file(). Supports torch's 8-bit and 4-bit floats. Throws
/// the errors of checkpoint::write_safetensors(), and Error(kInvalidArgument) for tensors that are
/// sparse, quantized or on LibTorch's device "meta".
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

}  // namespace unisono
