#include "sim_device/operator_task.h"

#include <ATen/EmptyTensor.h>

namespace sim {

void call_cpu_kernel(const c10::OperatorHandle& op, Stack& stack) {
  const BelowAutograd below;
  op.callBoxed(stack);
}

void OperatorTask::add_argument(const c10::IValue& value, bool is_written) {
  if (value.isDevice()) {
    arguments_.push_back({c10::Device(c10::kCPU), {}, false});
    return;
  }
  const BelowAutograd below;
  Argument argument{{}, {}, is_written};
  argument.value = with_tensors(value, [&](const at::Tensor& t) {
    if (!t.is_privateuseone()) {
      argument.places.emplace_back();
      return t.clone();
    }
    argument.places.emplace_back(place_of(t));
    return at::Tensor(at::detail::empty_cpu({0}, t.scalar_type(), false));
  });
  arguments_.push_back(std::move(argument));
}

Stack OperatorTask::run() const {
  Stack stack;
  std::vector<std::pair<at::Tensor, const Place*>> written;
  for (const Argument& argument : arguments_) {
    auto place = argument.places.begin();
    stack.push_back(with_tensors(argument.value, [&](const at::Tensor& t) {
      const std::optional<Place>& next = *place++;
      if (!next) {
        return t;
      }
      at::Tensor opened = next->open();
      if (argument.is_written) {
        written.emplace_back(opened, &*next);
      }
      return opened;
    }));
  }
  call_cpu_kernel(op_, stack);
  const BelowAutograd below;
  for (const auto& [tensor, place] : written) {
    // A kernel that resized its result has moved it to host memory.
    if (tensor.const_data_ptr() != place->data) {
      place->open().copy_(tensor);
    }
  }
  return stack;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return {value.toTensor()};
  }
  return value.toTensorVector();
}

}  // namespace sim
