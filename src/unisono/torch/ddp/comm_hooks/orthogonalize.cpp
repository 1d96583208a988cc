#include "unisono/torch/ddp/comm_hooks/orthogonalize.h"

#include <cstdint>
#include <tuple>

#include <ATen/ops/linalg_qr.h>

namespace unisono::ddp {
namespace {

void run_gram_schmidt(const at::Tensor& matrix, double epsilon) {
  const std::int64_t n_columns = matrix.size(1);
  for (std::int64_t i = 0; i < n_columns; ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    column.div_(column.norm(2, {0}, /*keepdim=*/true).add_(epsilon));
    const at::Tensor rest = matrix.narrow(1, i + 1, n_columns - i - 1);
    rest.sub_(column.mul(rest).sum({0}, /*keepdim=*/true).mul(column));
  }
}

}  // namespace

void orthogonalize(const at::Tensor& matrix, double epsilon) {
  const bool is_16_bit = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  if (matrix.size(1) <= 2 || is_16_bit) {
    run_gram_schmidt(matrix, epsilon);
  } else {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
  }
}

}  // namespace unisono::ddp
