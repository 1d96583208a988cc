#pragma once

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// Makes the matrix's columns, no more than its rows, orthonormal, in place: by Gram and Schmidt's
/// procedure up to two columns, where it is fastest, by a QR decomposition from three on. The
/// procedure adds `epsilon` to the norms that it divides by.
void orthogonalize(const at::Tensor& matrix, double epsilon);

}  // namespace unisono::ddp
