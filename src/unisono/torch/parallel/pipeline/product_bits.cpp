#include "unisono/torch/parallel/pipeline/product_bits.h"

#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <c10/core/GradMode.h>

namespace unisono::parallel {
namespace {

// By numbers of which sums are rounded.
bool are_alike_in(at::ScalarType type,
                  std::int64_t n_rows,
                  std::int64_t left_width,
                  std::int64_t right_width) {
  const c10::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::TensorOptions options(type);
  const at::Tensor left = at::rand({n_rows, left_width}, generator, options).t();
  const at::Tensor right = at::rand({n_rows, right_width}, generator, options);
  const at::Tensor expected = at::mm(left, right);
  constexpr double kSome = 0.7;
  const at::Tensor sum = expected * kSome;
  expected.add_(sum);
  sum.addmm_(left, right);
  return at::equal(sum, expected);
}

}  // namespace

bool ProductBits::are_alike(at::ScalarType type,
                            std::int64_t n_rows,
                            std::int64_t left_width,
                            std::int64_t right_width) {
  const Shape shape{type, n_rows, left_width, right_width, at::get_num_threads()};
  return are_alike_.try_emplace(shape).first->second.value_or(false);
}

void ProductBits::try_new_shapes() {
  for (auto& [shape, result] : are_alike_) {
    const auto& [type, n_rows, left_width, right_width, n_threads] = shape;
    if (!result.has_value() && n_threads == at::get_num_threads()) {
      result = are_alike_in(type, n_rows, left_width, right_width);
    }
  }
}

}  // namespace unisono::parallel
