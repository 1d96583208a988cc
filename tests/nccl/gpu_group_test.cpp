// Types, rejected calls, streams, memory and groups of engine nccl.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"

#include "fake_cuda.h"
#include "on_gpu.h"

namespace unisono {
namespace {

using test::nccl_world;
using test::on_gpu;
using test::run_ranks;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class T>
void expect_sum_of(std::vector<T> one, std::vector<T> other, const std::vector<T>& expected) {
  run_ranks(nccl_world(2), [&](ProcessGroup& group) {
    std::vector<T> values = group.rank() == 0 ? one : other;
    group.all_reduce(on_gpu(values, group.rank()));
    EXPECT_EQ(values, expected);
  });
}

TEST(NcclTypes, IntegersAndDoublesAreAdded) {
  expect_sum_of<std::int64_t>(
      {1, -2}, {std::int64_t{1} << 40, 5}, {(std::int64_t{1} << 40) + 1, 3});
  expect_sum_of<std::uint8_t>({200}, {50}, {250});
  expect_sum_of<std::int32_t>({-7}, {3}, {-4});
  expect_sum_of<double>({0.5}, {0.25}, {0.75});
}

TEST(NcclTypes, TheSumOfBoolsIsOrAndTheirProductAnd) {
  for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kProduct}) {
    run_ranks(nccl_world(2), [&](ProcessGroup& group) {
      std::vector<std::uint8_t> values{0, 1, static_cast<std::uint8_t>(group.rank())};
      Buffer buffer = on_gpu(values, group.rank());
      buffer.dtype = DType::kBool;
      group.all_reduce(buffer, {.op = ReduceOp(kind)});
      const std::uint8_t mixed = kind == ReduceKind::kSum ? 1 : 0;
      EXPECT_EQ(values, (std::vector<std::uint8_t>{0, 1, mixed}));
    });
  }
}

TEST(NcclTypes, ComplexNumbersAreAddedInBothParts) {
  run_ranks(nccl_world(2), [&](ProcessGroup& group) {
    std::vector<float> values{1, 2, 3, static_cast<float>(group.rank())};
    Buffer buffer = on_gpu(values, group.rank());
    buffer.dtype = DType::kComplex64;
    buffer.count = 2;
    group.all_reduce(buffer);
    EXPECT_EQ(values, (std::vector<float>{2, 4, 6, 1}));
  });
}

TEST(NcclTypes, WhatIsOnlyMovedMayBeOfAnyType) {
  run_ranks(nccl_world(2), [&](ProcessGroup& group) {
    std::vector<std::int16_t> values(3, static_cast<std::int16_t>(group.rank() + 7));
    group.broadcast(on_gpu(values, group.rank()), {.root = 1});
    EXPECT_EQ(values, (std::vector<std::int16_t>{8, 8, 8}));
  });
}

// The backend rejects an unsupported call before any transfer, and the group stays usable.
TEST(NcclRefusals, NameWhatIsWrongAndLeaveTheGroupAsItWas) {
  run_ranks(nccl_world(2), [&](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    std::vector<std::int16_t> shorts(2, 1);
    std::vector<std::int32_t> bits(2, 1);
    const Buffer floats = on_gpu(values, group.rank());
    const auto expect_refusal = [&](const std::function<void()>& call, const std::string& text) {
      EXPECT_THAT(call, ThrowsMessage<Error>(HasSubstr(text)));
    };
    expect_refusal([&] { group.all_reduce(on_gpu(shorts, group.rank())); },
                   "backend nccl does not reduce i16; ");
    expect_refusal(
        [&] { group.all_reduce(on_gpu(bits, group.rank()), {.op = ReduceOp(ReduceKind::kBor)}); },
        "NCCL has no bor of i32");
    expect_refusal(
        [&] { group.all_reduce(floats, {.algorithm = Algorithm::kRing}); },
        "leave out algorithm ring, or copy the buffers to the CPU, where this group has it");
    expect_refusal([&] { group.all_reduce(on_gpu(values, 17)); },
                   "it has buffers on cuda:17, which does not exist");
    expect_refusal([&] { group.send(floats, 1 - group.rank()); },
                   "the buffer is on a CUDA device; messages are for memory on the CPU");
    group.all_reduce(floats);
    EXPECT_EQ(values, (std::vector<float>{2, 2}));
    expect_refusal([&] { group.all_reduce(on_gpu(values, 1 - group.rank())); },
                   "make another group for another GPU");
    group.all_reduce(floats);
    EXPECT_EQ(values, (std::vector<float>{4, 4}));
  });
}

TEST(NcclStreams, WhatTheDefaultStreamWasGivenBeforeComesFirst) {
  run_ranks(nccl_world(2), [&](ProcessGroup& group) {
    std::vector<float> values(1, 100.0F);
    fake_cuda::enqueue(fake_cuda::default_stream(), [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      values[0] = 1;
    });
    group.all_reduce(on_gpu(values, group.rank()));
    EXPECT_EQ(values[0], 2);
  });
}

TEST(NcclMemory, OfAGroupIsOnTheGpuOfItsRank) {
  run_ranks(nccl_world(3), [&](ProcessGroup& group) {
    const Buffer buffer = group.allocate(4, DType::kFloat32);
    EXPECT_EQ(buffer.device, (Device{.type = DeviceType::kCuda, .index = group.rank()}));
    auto* const values = static_cast<float*>(buffer.data);
    std::fill_n(values, 4, 1.0F);
    group.all_reduce(buffer);
    EXPECT_EQ(values[3], 3);
  });
}

TEST(NcclGroups, OfSomeRanksHaveCommunicatorsOfTheirOwn) {
  test::run_sharing_ranks(nccl_world(3), [](const std::shared_ptr<ProcessGroup>& group) {
    const std::shared_ptr<ProcessGroup> part = group->new_group(std::vector<int>{0, 2});
    std::vector<float> values(1, static_cast<float>(group->rank() + 1));
    if (part != nullptr) {
      part->all_reduce(on_gpu(values, group->rank()));
      EXPECT_EQ(values[0], 4);
    }
    std::vector<float> all(1, 1.0F);
    group->all_reduce(on_gpu(all, group->rank()));
    EXPECT_EQ(all[0], 3);
  });
}

TEST(NcclBackend, IsThereForBothDevices) {
  const engine::Backend backend = engine::look_up_backend("nccl");
  EXPECT_TRUE(backend.has("all_reduce", DeviceType::kCpu));
  EXPECT_TRUE(backend.has("all_reduce", DeviceType::kCuda));
  EXPECT_TRUE(backend.has("send", DeviceType::kCpu));
  EXPECT_FALSE(backend.has("send", DeviceType::kCuda));
}

}  // namespace
}  // namespace unisono
