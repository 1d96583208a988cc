#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sim_device/operator_shapes.h"
#include "sim_device/place.h"

namespace sim {

/// Calls the CPU's kernel of an operator, below autograd and autocast.
void call_cpu_kernel(const c10::OperatorHandle& op, Stack& stack);

/// A call of an operator in the form that a stream's thread can run: places instead of tensors of
/// the device, and copies of CPU tensors. Made by the calling thread; a single task runs it.
class OperatorTask {
 public:
  explicit OperatorTask(c10::OperatorHandle op) : op_(std::move(op)) {}

  /// Appends an argument. Tensors of the device become places. `is_written` as in the schema.
  void add_argument(const c10::IValue& value, bool is_written);

  /// Runs the CPU's kernel on the bytes of the device. Returns the stack with the results.
  [[nodiscard]] Stack run() const;

 private:
  struct Argument {
    c10::IValue value;
    /// A place for each defined tensor of `value`; empty for a CPU tensor.
    std::vector<std::optional<Place>> places;
    bool is_written;
  };

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;
};

/// Returns the defined and undefined tensors of a result.
std::vector<at::Tensor> tensors_of(const c10::IValue& value);

}  // namespace sim
