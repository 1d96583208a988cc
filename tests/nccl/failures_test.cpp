// Failures of NCCL, of a rank or of a call lead to an error with the cause, and never to a hang.
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "fake_cuda.h"
#include "on_gpu.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::GpuFault;
using test::n_aborted;
using test::nccl_world;
using test::on_gpu;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

// Limit of an operation that all ranks join, on a machine that may be busy.
constexpr std::chrono::seconds kLimit{2};

std::chrono::steady_clock::duration since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::steady_clock::now() - begin;
}

TEST(NcclFailures, TwoRanksOnOneGpuAreNamed) {
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(3), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    group.all_reduce(on_gpu(values, group.rank() == 2 ? 1 : 0));
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("ranks 0 and 1 are both on cuda:0 of "),
                         HasSubstr("choose each rank's device by LOCAL_RANK"))));
}

TEST(NcclFailures, ADriverForAnOlderCudaIsNamedWithTheVersions) {
  const GpuFault fault("old_driver");
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(2), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    group.all_reduce(on_gpu(values, group.rank()));
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("all_reduce #1 (f32[2]"),
                         HasSubstr("CUDA driver version is insufficient"),
                         ContainsRegex("/libnccl.so.2 is NCCL 2.27.3, and NVIDIA's driver supports "
                                       "CUDA 13.0: .* update the driver, or install the NCCL of "
                                       "this CUDA, such as pip install nvidia-nccl-cu13"))));
}

// A stream without its second event is destroyed, with the first event.
TEST(NcclFailures, AStreamThatCannotBeMadeLeavesNoHandles) {
  const int n_before = fake_cuda::n_live_handles();
  const GpuFault fault("second_event");
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(1), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    group.all_reduce(on_gpu(values, 0));
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("[rank 0/1] all_reduce #1"), HasSubstr("cuEventCreate"))));
  EXPECT_EQ(fake_cuda::n_live_handles(), n_before);
}

TEST(NcclFailures, DifferentCallsAreSaidWithBothRanks) {
  for (const bool is_barrier : {true, false}) {
    const std::vector<std::string> errors =
        errors_of_ranks(nccl_world(2), [&](ProcessGroup& group) {
          std::vector<float> values(2, 1.0F);
          const Buffer buffer = on_gpu(values, group.rank());
          if (group.rank() == 0) {
            group.all_reduce(buffer);
          } else if (is_barrier) {
            group.barrier();
          } else {
            group.broadcast(buffer, {.root = 1});
          }
        });
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("rank 0 (pid"),
                           HasSubstr("all_reduce #1 (f32[2]"),
                           HasSubstr("rank 1 (pid"),
                           HasSubstr(is_barrier ? "barrier #1" : "broadcast #1 (f32[2]"))));
  }
}

TEST(NcclFailures, BlocksThatDoNotFitAreSaid) {
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(2), [](ProcessGroup& group) {
    std::vector<float> in(3, 1.0F);
    std::vector<float> out(3);
    // Rank 1 expects one element from rank 0, which sends two.
    const std::vector<std::int64_t> in_counts =
        group.rank() == 0 ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{1, 2};
    const std::vector<std::int64_t> out_counts =
        group.rank() == 0 ? std::vector<std::int64_t>{1, 1} : std::vector<std::int64_t>{1, 2};
    out.resize(group.rank() == 0 ? 2 : 3);
    group.all_to_all(on_gpu(in, group.rank()),
                     on_gpu(out, group.rank()),
                     {.in_counts = in_counts, .out_counts = out_counts});
  });
  EXPECT_THAT(errors,
              Each(ContainsRegex("rank 0 .* gives 2 elements to rank 1 .*, which takes 1")));
}

TEST(NcclFailures, ARankThatDoesNotComeIsNamed) {
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(2), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    if (group.rank() == 0) {
      group.all_reduce(on_gpu(values, 0), {.timeout = std::chrono::milliseconds(300)});
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("timed out waiting for rank 1"), HasSubstr("all_reduce")));
}

TEST(NcclFailures, WhatNcclDoesNotFinishInTimeIsAborted) {
  const GpuFault fault("hang");
  const int n_before = n_aborted();
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(2), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    group.all_reduce(on_gpu(values, group.rank()), {.timeout = kLimit});
  });
  EXPECT_LT(since(begin), std::chrono::seconds(10));
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("all_reduce #1 (f32[2]"),
                         HasSubstr("every rank has called it, but NCCL has not finished it"),
                         HasSubstr("NCCL_DEBUG=INFO"))));
  EXPECT_EQ(n_aborted(), n_before + 2);
}

TEST(NcclFailures, ACommunicatorThatIsNeverThereIsNotWaitedForForever) {
  const GpuFault fault("no_communicator");
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(2), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    group.all_reduce(on_gpu(values, group.rank()), {.timeout = kLimit});
  });
  EXPECT_THAT(errors, Each(HasSubstr("NCCL has not finished it")));
}

// Only rank 0's NCCL detects the fault. Rank 1 receives the error from rank 0 long before its
// timeout.
TEST(NcclFailures, WhatOneRanksNcclNoticesEndsAllRanks) {
  const GpuFault fault("remote_error");
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(2), [](ProcessGroup& group) {
    std::vector<float> values(2, 1.0F);
    group.all_reduce(on_gpu(values, group.rank()));
    group.barrier();
  });
  EXPECT_LT(since(begin), std::chrono::seconds(20));
  EXPECT_THAT(errors, Each(HasSubstr("NCCL: remote process exited or there was a network error")));
}

TEST(NcclFailures, BuffersOnTwoDevicesAreNoOperation) {
  const std::vector<std::string> errors = errors_of_ranks(nccl_world(1), [](ProcessGroup& group) {
    std::vector<float> in(2, 1.0F);
    std::vector<float> out(2);
    group.all_gather(on_gpu(in, 0), as_buffer(std::span(out)));
  });
  EXPECT_THAT(errors, Each(HasSubstr("it has buffers on cuda:0 and on the CPU")));
}

}  // namespace
}  // namespace unisono
