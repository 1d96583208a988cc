// The output of `unisono backends` is true for each operation and device.
#include <fmt/format.h>
#include <stdlib.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"

#include "support/ranks.h"
#include "tested_backend.h"

namespace unisono {
namespace {

// `block` has one element; `whole` has one element for each rank.
using CallOperation =
    std::function<void(ProcessGroup& group, const Buffer& block, const Buffer& whole)>;

Buffer for_root(const ProcessGroup& group, const Buffer& whole) {
  return group.rank() == 0 ? whole : Buffer{};
}

const std::map<std::string_view, CallOperation> kCalls{
    {"all_reduce", [](auto& group, auto& block, auto&) { group.all_reduce(block); }},
    {"all_reduce_coalesced",
     [](auto& group, auto& block, auto&) {
       group.all_reduce_coalesced(std::vector<Buffer>{block});
     }},
    {"reduce", [](auto& group, auto& block, auto&) { group.reduce(block, block); }},
    {"reduce_scatter",
     [](auto& group, auto& block, auto& whole) { group.reduce_scatter(whole, block); }},
    {"reduce_scatter_coalesced",
     [](auto& group, auto& block, auto& whole) {
       group.reduce_scatter_coalesced(std::vector<Buffer>{whole}, std::vector<Buffer>{block});
     }},
    {"broadcast", [](auto& group, auto& block, auto&) { group.broadcast(block); }},
    {"all_gather", [](auto& group, auto& block, auto& whole) { group.all_gather(block, whole); }},
    {"all_gather_coalesced",
     [](auto& group, auto& block, auto& whole) {
       group.all_gather_coalesced(std::vector<Buffer>{block}, std::vector<Buffer>{whole});
     }},
    {"gather",
     [](auto& group, auto& block, auto& whole) { group.gather(block, for_root(group, whole)); }},
    {"scatter",
     [](auto& group, auto& block, auto& whole) { group.scatter(for_root(group, whole), block); }},
    {"all_to_all",
     [](auto& group, auto&, auto& whole) {
       std::vector<float> out(2);
       Buffer buffer = as_buffer(std::span(out));
       buffer.device = whole.device;
       group.all_to_all(whole, buffer);
     }},
    {"barrier", [](auto& group, auto&, auto&) { group.barrier(); }},
    {"monitored_barrier", [](auto& group, auto&, auto&) { group.monitored_barrier(); }},
    {"send",
     [](auto& group, auto& block, auto&) {
       // The rank sends to itself, so that a rejected buffer leaves no peer waiting.
       const Work received = group.recv_async(block, group.rank());
       group.send(block, group.rank());
       received.wait();
     }},
    {"recv",
     [](auto& group, auto& block, auto&) {
       const Work sent = group.send_async(block, group.rank());
       group.recv(block, group.rank());
       sent.wait();
     }},
    {"batch",
     [](auto& group, auto& block, auto&) {
       using Kind = PointToPointOperation::Kind;
       const std::vector<PointToPointOperation> both{
           {.kind = Kind::kSend, .buffer = block, .peer = group.rank()},
           {.kind = Kind::kRecv, .buffer = block, .peer = group.rank()}};
       for (const Work& work : group.batch(both)) {
         work.wait();
       }
     }},
};

TEST(Capabilities, OfEveryOperationThereIsACall) {
  EXPECT_EQ(kCalls.size(), engine::operation_names().size());
  for (const std::string_view name : engine::operation_names()) {
    EXPECT_TRUE(kCalls.contains(name)) << name;
  }
}

TEST(Capabilities, EachOperationWorksOnADeviceOrIsRefusedAsTheTableSays) {
  const engine::Backend backend = engine::look_up_backend(test::tested_backend());
  test::run_ranks(test::one_node(2), [&](ProcessGroup& group) {
    for (const auto& [name, call] : kCalls) {
      for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
        std::vector<float> one(1, 1.0F);
        std::vector<float> all(2, 1.0F);
        Buffer block = as_buffer(std::span(one));
        Buffer whole = as_buffer(std::span(all));
        block.device = {.type = device, .index = group.rank()};
        whole.device = block.device;
        // An operation without a buffer has no device.
        const bool is_barrier = name == "barrier" || name == "monitored_barrier";
        if (backend.has(name, device) || is_barrier) {
          EXPECT_NO_THROW(call(group, block, whole)) << name;
        } else {
          EXPECT_THAT([&] { call(group, block, whole); },
                      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("CUDA device")))
              << name;
        }
      }
    }
  });
}

TEST(Capabilities, AGroupIsOfTheBackendThatIsAskedFor) {
  // Hides GPUs, so that the test also passes on a machine with a GPU or a simulated GPU.
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  for (const std::string name : {"gloo", "nccl"}) {
    EXPECT_THAT([&] { (void)create_process_group({.backend = name}); },
                ::testing::ThrowsMessage<Error>(
                    ::testing::HasSubstr("backend " + name + " can't be used here: ")));
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT([] { (void)create_process_group({.backend = "smoke signals"}); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                  "init_process_group: there is no backend \"smoke signals\"")));
}

// Every rank rejects a call beyond the backend's capabilities, and the group stays usable.
TEST(Capabilities, WhatABackendLacksIsRefusedBeforeAnythingIsSent) {
  using transport::OperationKind;
  const engine::MakeEngine keep = [](const transport::RankTable&, auto native) { return native; };
  engine::register_backend("frugal",
                           "lacks most",
                           keep,
                           {.operations = {OperationKind::kAllReduce,
                                           OperationKind::kBroadcast,
                                           OperationKind::kBarrier},
                            .dtypes = {DType::kFloat32},
                            .reduced_dtypes = {DType::kFloat32, DType::kInt64},
                            .reductions = {ReduceKind::kSum},
                            .takes_algorithm = false});
  test::World frugal = test::one_node(2);
  frugal.backend = "frugal";
  test::run_ranks(frugal, [](ProcessGroup& group) {
    std::vector<float> one(1, 1.0F);
    std::vector<float> all(2, 1.0F);
    std::vector<double> f64(1, 1.0);
    const Buffer block = as_buffer(std::span(one));
    const Buffer wide = as_buffer(std::span(f64));
    const auto refuses = [&](const auto& call, const std::string& text) {
      EXPECT_THAT(call,
                  ::testing::ThrowsMessage<Error>(::testing::AllOf(
                      ::testing::StartsWith(fmt::format("[rank {}/2] ", group.rank())),
                      ::testing::HasSubstr("backend frugal " + text),
                      ::testing::HasSubstr("make the group with backend unisono, which has it"))));
    };
    refuses([&] { group.all_gather(block, as_buffer(std::span(all))); }, "has no all_gather");
    refuses(
        [&] {
          group.all_gather_coalesced(std::vector{block}, std::vector{as_buffer(std::span(all))});
        },
        "has no all_gather_coalesced");
    refuses([&] { group.monitored_barrier(); }, "has no monitored_barrier");
    refuses([&] { group.broadcast(wide); }, "does not move f64");
    refuses([&] { group.all_reduce(wide); }, "does not reduce f64");
    refuses([&] { group.all_reduce(block, {.op = kMax}); }, "has no reduction max");
    refuses([&] { group.all_reduce(block, {.algorithm = Algorithm::kOneShot}); },
            "chooses the algorithm by itself");
    group.all_reduce(block);
    EXPECT_EQ(one[0], 2.0F);
    group.broadcast(block);
    group.barrier();
  });
}

}  // namespace
}  // namespace unisono
