// Types, rejected calls, streams, memory and groups of engine nccl.
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/rank_table.h"

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
                   "cuda:17 does not exist: this process has 4 GPUs, cuda:0 to cuda:3; `unisono "
                   "devices` lists the GPUs; choose the device by LOCAL_RANK");
    expect_refusal([&] { group.all_reduce(on_gpu(values, -1)); }, "cuda:-1 does not exist");
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

TEST(NcclRefusals, OfADeviceNameTheVariableThatHidesIt) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
  run_ranks(nccl_world(1), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    EXPECT_THAT([&] { group.all_reduce(on_gpu(values, 2)); },
                ThrowsMessage<Error>(
                    HasSubstr("[rank 0/1] all_reduce: cuda:2 does not exist: this process has 2 "
                              "GPUs, cuda:0 to cuda:1 (CUDA_VISIBLE_DEVICES=\"0,2\"); ")));
  });
  ::unsetenv("CUDA_VISIBLE_DEVICES");
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

// Rank 1 is the first rank of the second group, but has the second GPU.
TEST(NcclMemory, OfAGroupOfSomeRanksIsOnTheGpuOfTheLocalRank) {
  test::run_sharing_ranks(nccl_world(3), [](const std::shared_ptr<ProcessGroup>& group) {
    const std::shared_ptr<ProcessGroup> part = group->new_group(std::vector<int>{1, 2});
    if (part != nullptr) {
      EXPECT_EQ(part->allocate(1, DType::kFloat32).device.index, group->rank());
    }
  });
}

TEST(NcclMemory, FollowsTheVariableLocalRank) {
  test::World world = nccl_world(3);
  world.own_environment = {
      {0, {{"LOCAL_RANK", "2"}}}, {1, {{"LOCAL_RANK", "3"}}}, {2, {{"LOCAL_RANK", "5"}}}};
  run_ranks(world, [](ProcessGroup& group) {
    const std::vector<int> expected{2, 3, 1};  // There are four GPUs.
    EXPECT_EQ(group.allocate(1, DType::kFloat32).device.index,
              expected[static_cast<std::size_t>(group.rank())]);
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

// Passes each message to engine nccl as a message of GPU memory.
class MessagesOnGpu final : public engine::Engine {
 public:
  explicit MessagesOnGpu(std::shared_ptr<engine::Engine> nccl) : nccl_(std::move(nccl)) {}

  void execute(const engine::Operation& operation,
               TimeLimit limit,
               engine::Caller caller) override {
    nccl_->execute(operation, limit, caller);
  }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    return nccl_->allocate(count, dtype);
  }

  void check(const engine::Operation& operation) const override { nccl_->check(operation); }

  int pass_message(const engine::MessageCall& call) override {
    const Buffer buffer = moved(call.buffer);
    return nccl_->pass_message({.is_send = call.is_send,
                                .peer = call.peer,
                                .tag = call.tag,
                                .buffer = buffer,
                                .label = call.label,
                                .timeout = call.timeout});
  }

  void begin_messages(std::span<const engine::MessageCall> calls) override {
    const Buffer buffer = moved(calls[0].buffer);
    const engine::MessageCall call{.is_send = calls[0].is_send,
                                   .peer = calls[0].peer,
                                   .tag = calls[0].tag,
                                   .buffer = buffer,
                                   .label = calls[0].label,
                                   .timeout = calls[0].timeout,
                                   .handle = calls[0].handle};
    nccl_->begin_messages(std::span(&call, 1));
  }

  void abort(const Error& reason) noexcept override { nccl_->abort(reason); }

  void leave() noexcept override { nccl_->leave(); }

 private:
  static Buffer moved(Buffer buffer) {
    buffer.device = {.type = DeviceType::kCuda, .index = 1};
    return buffer;
  }

  std::shared_ptr<engine::Engine> nccl_;
};

// The engine itself refuses such a buffer, and the group stays usable.
TEST(NcclMessages, OfGpuMemoryAreRefusedByTheEngine) {
  const engine::Backend nccl = engine::prepared(engine::look_up_backend("nccl"), {});
  engine::register_backend(
      "messages on gpus",
      "for tests",
      [make = nccl.make](const transport::RankTable& roster,
                         std::shared_ptr<engine::SupervisingEngine> native) {
        return std::make_shared<MessagesOnGpu>(make(roster, std::move(native)));
      },
      nccl.capabilities);
  test::World world = nccl_world(2);
  world.backend = "messages on gpus";
  run_ranks(world, [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    const Buffer buffer = as_buffer(std::span(values));
    const int peer = 1 - group.rank();
    const std::string prefix = "[rank " + std::to_string(group.rank()) + "/2] ";
    const std::string text =
        ": the buffer is on cuda:1, and backend nccl passes messages between buffers on the CPU; "
        "copy the buffer to the CPU first";
    EXPECT_THAT([&] { group.send(buffer, peer); },
                ThrowsMessage<Error>(HasSubstr(prefix + "send" + text)));
    EXPECT_THAT([&] { (void)group.recv_async(buffer, peer); },
                ThrowsMessage<Error>(HasSubstr(prefix + "recv" + text)));
    group.all_reduce(buffer);
    EXPECT_EQ(values, (std::vector<float>{2, 2}));
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
