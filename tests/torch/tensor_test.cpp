#include "unisono/torch/tensor/tensor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/hash.h"

#include "rank_threads.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_rejected(const at::Tensor& tensor, const ::testing::Matcher<std::string>& message) {
  try {
    static_cast<void>(as_buffer(tensor));
    ADD_FAILURE() << "the tensor must be rejected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(std::string(error.what()), message);
  }
}

TEST(TensorBuffer, IsTheTensorsMemoryAndKeepsIt) {
  Buffer buffer;
  {
    const at::Tensor tensor = torch::arange(6, torch::kInt).view({2, 3});
    buffer = as_buffer(tensor);
    EXPECT_EQ(buffer.data, tensor.data_ptr());
  }
  EXPECT_EQ(buffer.count, 6);
  EXPECT_EQ(buffer.dtype, DType::kInt32);
  EXPECT_EQ(static_cast<const std::int32_t*>(buffer.data)[5], 5);
}

TEST(TensorBuffer, EveryElementTypeGoesThereAndBack) {
  for (int number = 0; number < kDTypeCount; ++number) {
    const auto dtype = static_cast<DType>(number);
    const at::ScalarType type = scalar_type_of(dtype);
    EXPECT_EQ(dtype_of(type), dtype);
    EXPECT_EQ(c10::elementSize(type), size_of(dtype)) << to_string(dtype);
  }
}

TEST(TensorBuffer, WhatCannotBeSentIsExplained) {
  expect_rejected({}, HasSubstr("undefined"));
  expect_rejected(torch::zeros({2, 3}).t(),
                  AllOf(HasSubstr("f32[3, 2] with strides [1, 3]"), HasSubstr(".contiguous()")));
  expect_rejected(torch::zeros({2, 3}).to_sparse(), HasSubstr("to_dense()"));
  expect_rejected(torch::zeros({2}, torch::kFloat8_e4m3fn), HasSubstr("Float8_e4m3fn"));
  expect_rejected(torch::zeros({2}, torch::kMeta), HasSubstr("on meta"));
  expect_rejected(torch::zeros({2}, torch::kComplexFloat).conj(), HasSubstr("resolve_conj()"));
}

TEST(TensorOperations, ReduceAndBroadcastInPlaceAndNot) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor mine = torch::full({2, 2}, group->rank() + 1.0);
    const at::Tensor sum = torch::zeros({2, 2});
    all_reduce(*group, mine, sum);
    EXPECT_TRUE(sum.eq(6).all().item<bool>());
    EXPECT_TRUE(mine.eq(group->rank() + 1).all().item<bool>());
    all_reduce(*group, mine, {.op = kMax});
    EXPECT_TRUE(mine.eq(3).all().item<bool>());
    const at::Tensor root = torch::full({3}, group->rank(), torch::kLong);
    broadcast(*group, root, {.root = 2});
    EXPECT_TRUE(root.eq(2).all().item<bool>());
  });
}

TEST(TensorOperations, AWorkKeepsItsTensors) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor out = torch::zeros({1000});
    Work reduced = all_reduce_async(*group, torch::ones({1000}), out);
    Work sent = broadcast_async(*group, torch::full({1000}, 5.0));
    reduced.wait();
    sent.wait();
    EXPECT_TRUE(out.eq(2).all().item<bool>());
  });
}

TEST(TensorOperations, AutogradSeesThatATensorChanged) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor x = torch::ones({2}).requires_grad_(true);
    const at::Tensor y = x * 2;
    const at::Tensor z = (y * y).sum();
    all_reduce(*group, y.detach());
    EXPECT_THROW(z.backward(), c10::Error);
  });
}

TEST(AllocateTensor, IsZeroedAlignedAndOutlivesItsHandle) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor tensor = allocate_tensor(*group, {3, 0, 5}, at::kDouble);
    EXPECT_EQ(tensor.numel(), 0);
    at::Tensor row;
    {
      const at::Tensor matrix = allocate_tensor(*group, {4, 8});
      EXPECT_TRUE(matrix.eq(0).all().item<bool>());
      EXPECT_TRUE(matrix.is_contiguous());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.data_ptr()) % 64, 0U);
      row = matrix[1];
    }
    row.fill_(group->rank() + 1);
    all_reduce(*group, row);
    EXPECT_TRUE(row.eq(3).all().item<bool>());
    EXPECT_THROW(static_cast<void>(allocate_tensor(*group, {-1})), Error);
  });
}

TEST(HashTensors, TypeSizesAndBitsCountNotTheLayout) {
  const at::Tensor tensor = torch::arange(6, torch::kFloat).view({2, 3});
  const std::uint64_t hash = hash_tensors({tensor});
  EXPECT_EQ(hash, hash_tensors({tensor.t().contiguous().t()}));
  EXPECT_NE(hash, hash_tensors({tensor.view({3, 2})}));
  EXPECT_NE(hash, hash_tensors({tensor.view(torch::kInt)}));
  EXPECT_NE(hash, hash_tensors({tensor, {}}));
  EXPECT_NE(hash_tensors({torch::zeros({1})}), hash_tensors({-torch::zeros({1})}));
  EXPECT_EQ(format_hash(0xabc), "0000000000000abc");
}

}  // namespace
}  // namespace unisono::testing
