#include "reduce_op.h"

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "unisono/comm/options.h"

#include "arguments.h"

namespace unisono::python {
namespace {

double factor_of(const c10d::ReduceOp& op, const Arguments& arguments) {
  const auto* const supplement =
      dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) {
    arguments.reject("PREMUL_SUM without its factor");
  }
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

}  // namespace

ReduceOp reduce_op_of(const c10d::ReduceOp& op, const Arguments& arguments) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return kSum;
    case c10d::ReduceOp::AVG:
      return kAvg;
    case c10d::ReduceOp::PRODUCT:
      return kProduct;
    case c10d::ReduceOp::MIN:
      return kMin;
    case c10d::ReduceOp::MAX:
      return kMax;
    case c10d::ReduceOp::BAND:
      return kBand;
    case c10d::ReduceOp::BOR:
      return kBor;
    case c10d::ReduceOp::BXOR:
      return kBxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return premul_sum(factor_of(op, arguments));
    case c10d::ReduceOp::UNUSED:
      break;
  }
  arguments.reject("unknown reduction " + std::to_string(static_cast<int>(op.op_)));
}

}  // namespace unisono::python
