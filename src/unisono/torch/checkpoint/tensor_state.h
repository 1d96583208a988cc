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

/// Tensors by name: what a checkpoint has of a model, an optimizer, a training.
using TensorState = std::map<std::string, at::Tensor>;

/// Adds each tensor of `from`, its name behind `prefix`. Throws Error(kInvalidArgument) for a name
/// that is there already.
void add_state(TensorState& into, const std::string& prefix, const TensorState& from);

/// The tensors whose names begin with `prefix`, without it.
[[nodiscard]] TensorState state_below(const TensorState& state, const std::string& prefix);

/// Whether two tensors of one type and shape have the same bits, NaNs too.
[[nodiscard]] bool is_bit_equal(const at::Tensor& one, const at::Tensor& other);

/// Single numbers, as tensors of no axes.
[[nodiscard]] at::Tensor number_tensor(std::int64_t number);
[[nodiscard]] at::Tensor number_tensor(double number);

/// The number that was saved under `name`. Throws Error(kInvalidArgument) when it is not there, or
/// no single i64 or f64.
[[nodiscard]] std::int64_t integer_in(const TensorState& state, const std::string& name);
[[nodiscard]] double real_in(const TensorState& state, const std::string& name);

/// One safetensors file of whole tensors, there whole or not at all, which Python loads with
/// safetensors.torch.load_file(). Tensors of torch's 8-bit and 4-bit floats are saved as those of
/// any other type. Throws Error as checkpoint::write_safetensors(), and kInvalidArgument for
/// tensors that are sparse, quantized or not in CPU memory.
void save_state(const std::string& path, const TensorState& state);

/// All tensors of what checkpoint::Reader takes: a file, or the folder of a checkpoint or of
/// several, whoever saved it, in memory of their own. Of several it takes latest_checkpoint().
/// Throws Error as the reader and latest_checkpoint() do, and kInvalidArgument for a tensor of a
/// type that torch lacks (the format's 6-bit floats).
[[nodiscard]] TensorState load_state(const std::string& path);
[[nodiscard]] TensorState load_state(checkpoint::Reader& reader);

/// The same on every rank, of the checkpoint that rank 0 finds: a collective operation. What one
/// rank can't read, all throw, with that rank in the message.
[[nodiscard]] TensorState load_state(ProcessGroup& group, const std::string& path);

/// A part of a tensor in a checkpoint, whose other parts are not read.
[[nodiscard]] at::Tensor read_part(checkpoint::Reader& reader,
                                   const std::string& name,
                                   const checkpoint::Box& box);

/// What this rank passes to checkpoint::save_checkpoint() or Saver. The parts' bytes are of
/// `tensors`, which share the memory of those that were given, where that is contiguous.
struct StateParts {
  std::vector<checkpoint::TensorPart> parts;
  std::vector<checkpoint::TensorInfo> common;  ///< Lets ranks that have others be found.
  std::vector<at::Tensor> tensors;
};

/// Of `common`, which all ranks have alike, each rank gets another part, of about equal size; of
/// `own`, whose names differ between ranks, all. A collective operation.
///
/// Throws Error(kInvalidArgument) as save_state(), on every rank the same, which names the rank
/// whose tensor it is. Afterwards the group is as before.
[[nodiscard]] StateParts parts_to_save(ProcessGroup& group,
                                       const TensorState& common,
                                       const TensorState& own = {});

}  // namespace unisono
