// Operations on tensors of the simulated devices. Rank r has device "sim:r".

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/device/device_stream.h"
#include "unisono/torch/tensor/tensor.h"

#include "rank_threads.h"
#include "sim_device/quiet_end.h"

namespace unisono::testing {
namespace {

using DeviceCollectives = sim::QuietEnd;

at::Device device_of(const ProcessGroup& group) {
  return {at::kPrivateUse1, static_cast<c10::DeviceIndex>(group.rank())};
}

// Returns values of one rank, which a chain of late operators computes on the device.
at::Tensor late_values(const at::Tensor& start, at::Device device) {
  at::Tensor values = start.to(device);
  for (int i = 0; i < 5; ++i) {
    values = values * 2 - start.to(device);
  }
  return values;
}

at::Tensor start_of(int rank, std::int64_t n_rows = 4) {
  return torch::arange(n_rows * 33, torch::kFloat).view({n_rows, 33}) * 0.1 + rank;
}

TEST_F(DeviceCollectives, GiveTheBitsOfTheHost) {
  run_ranks(4, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = device_of(group);
    const at::Tensor host = late_values(start_of(group.rank()), at::kCPU);
    const auto expect_equal = [](const at::Tensor& on_device, const at::Tensor& expected) {
      EXPECT_TRUE(torch::equal((on_device + 0).cpu(), expected + 0));
    };

    at::Tensor sum = late_values(start_of(group.rank()), device);
    at::Tensor host_sum = host.clone();
    all_reduce(group, sum, {.op = kAvg});
    all_reduce(group, host_sum, {.op = kAvg});
    expect_equal(sum, host_sum);

    const at::Tensor in = late_values(start_of(group.rank()), device);
    at::Tensor out = torch::empty_like(in);
    all_reduce(group, in, out);
    all_reduce(group, host, host_sum);
    expect_equal(out, host_sum);
    expect_equal(in, host);

    at::Tensor root = late_values(start_of(group.rank()), device);
    broadcast(group, root, {.root = 2});
    expect_equal(root, late_values(start_of(2), at::kCPU));

    at::Tensor all = torch::empty({16, 33}, device);
    at::Tensor host_all = torch::empty({16, 33});
    all_gather(group, in, all);
    all_gather(group, host, host_all);
    expect_equal(all, host_all);

    at::Tensor row = torch::empty({1, 33}, device);
    at::Tensor host_row = torch::empty({1, 33});
    reduce_scatter(group, in, row);
    reduce_scatter(group, host, host_row);
    expect_equal(row, host_row);

    at::Tensor blocks = torch::empty_like(in);
    at::Tensor host_blocks = torch::empty_like(host);
    all_to_all(group, in, blocks);
    all_to_all(group, host, host_blocks);
    expect_equal(blocks, host_blocks);

    const bool is_root = group.rank() == 1;
    at::Tensor gathered = torch::zeros({16, 33}, device);
    gather(group, in, is_root ? gathered : at::Tensor(), {.root = 1});
    expect_equal(gathered, is_root ? host_all : torch::zeros({16, 33}));
    scatter(group, is_root ? gathered : at::Tensor(), out, {.root = 1});
    expect_equal(out, host);
    reduce(group, in, is_root ? out : at::Tensor(), {.root = 1});
    expect_equal(out, is_root ? host_sum : host);
  });
}

TEST_F(DeviceCollectives, OrderStreamsWithoutWaitingForTheHost) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = device_of(group);
    for (int step = 0; step < 20; ++step) {
      at::Tensor values = late_values(start_of(group.rank() + step), device);
      const Work work = all_reduce_async(group, values);
      work.wait();
      values.mul_(2);
      at::Tensor expected =
          late_values(start_of(step), at::kCPU) + late_values(start_of(step + 1), at::kCPU);
      EXPECT_TRUE(torch::equal(values.cpu(), expected * 2)) << step;
    }
  });
}

TEST_F(DeviceCollectives, KeepTheMemoryOfTensorsThatAreDestroyed) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = device_of(group);
    for (int step = 0; step < 20; ++step) {
      const Work sum = all_reduce_async(group, late_values(start_of(group.rank()), device));
      const at::Tensor other = torch::ones({4, 33}, device);
      sum.wait();
      EXPECT_TRUE(torch::equal(other.cpu(), torch::ones({4, 33}))) << step;
    }
  });
}

TEST_F(DeviceCollectives, KeepTheMemoryOfResultsThatNobodyAwaits) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = device_of(group);
    for (int step = 0; step < 20; ++step) {
      (void)all_reduce_async(group, late_values(start_of(group.rank()), device));
      group.barrier();  // The operation has ended, and the copy of its result is under way.
      const at::Tensor other = torch::ones({4, 33}, device);
      EXPECT_TRUE(torch::equal(other.cpu(), torch::ones({4, 33}))) << step;
    }
  });
}

c10::Stream side_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

TEST_F(DeviceCollectives, SynchronizeMakesTheHostWaitForTheResult) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = device_of(group);
    const c10::Stream side = side_stream(device);
    for (int step = 0; step < 20; ++step) {
      at::Tensor values = late_values(start_of(group.rank() + step), device);
      all_reduce_async(group, values).synchronize();
      // No event orders this stream behind the copy: the host has waited.
      const c10::StreamGuard on_side(side);
      const at::Tensor expected =
          late_values(start_of(step), at::kCPU) + late_values(start_of(step + 1), at::kCPU);
      EXPECT_TRUE(torch::equal((values * 1).cpu(), expected)) << step;
    }
  });
}

TEST_F(DeviceCollectives, UsedStreamsOrderTheCurrentStream) {
  const at::Device device(at::kPrivateUse1, 0);
  const c10::Stream side = side_stream(device);
  for (int step = 0; step < 20; ++step) {
    UsedStreams streams;
    at::Tensor values;
    {
      const c10::StreamGuard on_side(side);
      values = late_values(start_of(step), device);
      streams.add_current(device);
    }
    streams.make_current_wait(device);
    EXPECT_TRUE(torch::equal((values * 1).cpu(), late_values(start_of(step), at::kCPU))) << step;
    c10::impl::VirtualGuardImpl(device.type())
        .recordDataPtrOnStream(values.storage().data_ptr(),
                               c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
}

TEST_F(DeviceCollectives, PassMessages) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = device_of(group);
    const int other = 1 - group.rank();
    for (const std::int64_t n_rows : {1, 4, 4000}) {
      const at::Tensor mine = late_values(start_of(group.rank(), n_rows), device);
      const at::Tensor expected = late_values(start_of(other, n_rows), at::kCPU);
      at::Tensor received = torch::empty_like(mine);
      const Work sent = send_async(group, mine, other);
      EXPECT_EQ(recv(group, received, other), other);
      EXPECT_TRUE(torch::equal((received * 1).cpu(), expected));
      sent.wait();

      received.zero_();
      const Work receives = recv_async(group, received, other);
      send(group, mine, other);
      receives.wait();
      EXPECT_TRUE(torch::equal((received * 1).cpu(), expected));
      receives.synchronize();
    }
  });
}

TEST_F(DeviceCollectives, MixWithRanksOnTheHost) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Device device = group.rank() == 0 ? device_of(group) : at::Device(at::kCPU);
    at::Tensor values = start_of(group.rank()).to(device);
    all_reduce(group, values);
    EXPECT_TRUE(torch::equal(values.cpu(), start_of(0) + start_of(1)));
  });
}

TEST_F(DeviceCollectives, RefuseADeviceThatDoesNotExist) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& /*group*/) {
    EXPECT_THAT([] { DeviceStream(at::Device(at::kCUDA, 0), DeviceStream::Direction::kToHost); },
                ::testing::ThrowsMessage<Error>(::testing::HasSubstr("cuda:0 does not exist")));
  });
}

}  // namespace
}  // namespace unisono::testing
