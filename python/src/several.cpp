#include "several.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "arguments.h"

namespace unisono::python {
namespace {

at::Tensor reduce_two(const at::Tensor& one,
                      const at::Tensor& other,
                      c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::PRODUCT:
      return at::mul(one, other);
    case c10d::ReduceOp::MIN:
      return at::minimum(one, other);
    case c10d::ReduceOp::MAX:
      return at::maximum(one, other);
    case c10d::ReduceOp::BAND:
      return at::bitwise_and(one, other);
    case c10d::ReduceOp::BOR:
      return at::bitwise_or(one, other);
    case c10d::ReduceOp::BXOR:
      return at::bitwise_xor(one, other);
    default:
      return at::add(one, other);
  }
}

}  // namespace

at::Tensor reduce_several(at::TensorList tensors,
                          const c10d::ReduceOp& op,
                          const Arguments& arguments) {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  at::Tensor result = tensors.front();
  arguments.checked_by_torch([&] {
    for (const at::Tensor& tensor : tensors.slice(1)) {
      result = reduce_two(result, tensor, op.op_);
    }
  });
  return result;
}

std::function<void()> finish_several(at::Tensor result,
                                     at::TensorList tensors,
                                     const c10d::ReduceOp& op) {
  return [result = std::move(result),
          tensors = tensors.vec(),
          is_average = op == c10d::ReduceOp::AVG]() mutable {
    if (is_average) {
      result.div_(static_cast<std::int64_t>(tensors.size()));
    }
    for (at::Tensor& tensor : tensors) {
      tensor.copy_(result);
    }
  };
}

std::function<void()> copy_to_others(at::TensorList tensors, std::size_t source) {
  return [tensors = tensors.vec(), source]() mutable {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (i != source) {
        tensors[i].copy_(tensors[source]);
      }
    }
  };
}

}  // namespace unisono::python
