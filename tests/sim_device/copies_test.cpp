#include <vector>

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim_device/quiet_end.h"
#include "sim_device/test_tensors.h"

namespace sim {
namespace {

using ::testing::IsEmpty;

class Copies : public QuietEnd {
 protected:
  static at::Tensor pinned_like(const at::Tensor& tensor) {
    return at::empty_like(tensor, tensor.options().device(at::kCPU).pinned_memory(true));
  }

  const c10::impl::VirtualGuardImpl guard_{c10::kPrivateUse1};
  const at::Tensor x_ = at::randn({300, 70});
};

TEST_F(Copies, PinnedMemoryIsRecognized) {
  const at::Tensor pinned = x_.pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(x_.is_pinned());
  EXPECT_TRUE(same_bits(pinned, x_));
}

TEST_F(Copies, ThroughPinnedMemoryAreLate) {
  const at::Tensor device = x_.pin_memory().to(sim_device(0), /*non_blocking=*/true);
  const at::Tensor back = pinned_like(x_);
  std::vector<at::Tensor> work;
  for (int i = 0; i < 50; ++i) {
    work.push_back(device.mm(device.t()));
  }
  back.copy_(device, /*non_blocking=*/true);
  EXPECT_TRUE(back.isnan().any().item<bool>()) << "the stream has work for many milliseconds";
  guard_.synchronizeStream(guard_.getStream(sim_device(0)));
  EXPECT_TRUE(same_bits(back, x_));
}

TEST_F(Copies, AnEarlyReadOfAPinnedTargetIsNanEachTime) {
  const at::Tensor device = x_.to(sim_device(0));
  const at::Tensor back = pinned_like(x_);
  for (int round = 0; round < 3; ++round) {
    std::vector<at::Tensor> work;
    for (int i = 0; i < 50; ++i) {
      work.push_back(device.mm(device.t()));
    }
    back.copy_(device, /*non_blocking=*/true);
    EXPECT_TRUE(back.isnan().any().item<bool>());
    guard_.synchronizeStream(guard_.getStream(sim_device(0)));
    EXPECT_TRUE(same_bits(back, x_));
  }
}

TEST_F(Copies, ToPageableMemoryAreLateIfTheyMay) {
  const at::Tensor device = x_.to(sim_device(0));
  const at::Tensor back = device.to(at::kCPU, at::kFloat, /*non_blocking=*/true);
  at::accelerator::synchronizeDevice(0);
  EXPECT_TRUE(same_bits(back, x_));
}

TEST_F(Copies, PageableMemoryMayChangeAfterTheCall) {
  at::Tensor source = x_.clone();
  at::Tensor device = at::empty_like(x_, x_.options().device(sim_device(0)));
  device.copy_(source, /*non_blocking=*/true);
  source.fill_(0);
  EXPECT_TRUE(same_bits(device, x_));
}

// The pinned source is read by the stream: changes after the call arrive, as on a GPU.
TEST_F(Copies, PinnedMemoryMustNotChangeBeforeTheWait) {
  const at::Tensor source = x_.pin_memory();
  at::Tensor device = at::empty_like(x_, x_.options().device(sim_device(0)));
  std::vector<at::Tensor> work;
  const at::Tensor factor = x_.to(sim_device(0));
  for (int i = 0; i < 50; ++i) {
    work.push_back(factor.mm(factor.t()));
  }
  device.copy_(source, /*non_blocking=*/true);
  source.fill_(0);
  EXPECT_FALSE(same_bits(device, x_));
}

TEST_F(Copies, ConvertTypesAndLayouts) {
  const at::Tensor device = x_.to(sim_device(0));
  EXPECT_TRUE(same_bits(device.to(at::kDouble), x_.to(at::kDouble)));
  EXPECT_TRUE(same_bits(device.to(at::kCPU, at::kBFloat16), x_.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(device.t().cpu(), x_.t()));
  at::Tensor strided = at::zeros({70, 300}, device.options());
  strided.t().copy_(x_);
  EXPECT_TRUE(same_bits(strided, x_.t().contiguous()));
  strided.copy_(x_.slice(0, 0, 1).t());
  EXPECT_TRUE(same_bits(strided, x_.slice(0, 0, 1).t().expand({70, 300})));
}

TEST_F(Copies, BetweenDevicesNeedNoEvent) {
  const at::Tensor first = x_.to(sim_device(0));
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(same_bits((first * 2).to(sim_device(3)) * 2, x_ * 4));
  }
}

TEST_F(Copies, BetweenSideStreamsOfDevicesNeedNoEventEither) {
  const at::Tensor first = x_.to(sim_device(1));
  const c10::StreamGuard one(guard_.getStreamFromGlobalPool(sim_device(1)));
  const c10::StreamGuard two(guard_.getStreamFromGlobalPool(sim_device(2)));
  EXPECT_TRUE(same_bits((first * 2).to(sim_device(2)) + 1, x_ * 2 + 1));
}

TEST_F(Copies, PinnedMemoryIsNotUsedAgainTooEarly) {
  at::Tensor device = at::empty_like(x_, x_.options().device(sim_device(0)));
  for (int i = 0; i < 20; ++i) {
    device.copy_(x_.pin_memory(), /*non_blocking=*/true);
  }
  EXPECT_TRUE(same_bits(device, x_));
}

TEST_F(Copies, AreCounted) {
  synchronize_all();
  const Counters before = counters();
  const at::Tensor device = x_.to(sim_device(0));
  const at::Tensor clone = device.clone();
  clone.cpu();
  clone.sum().item<float>();
  at::accelerator::synchronizeDevice(0);
  const Counters after = counters();
  EXPECT_EQ(after.host_to_device - before.host_to_device, 1U);
  EXPECT_EQ(after.device_to_device - before.device_to_device, 1U);
  EXPECT_EQ(after.device_to_host - before.device_to_host, 2U);
  EXPECT_EQ(after.host_waits - before.host_waits, 4U) << "of both copies, item() and the device";
}

TEST_F(Copies, ANonBlockingCopyDoesNotWait) {
  const at::Tensor source = x_.pin_memory();
  synchronize_all();
  const Counters before = counters();
  const at::Tensor device = source.to(sim_device(0), /*non_blocking=*/true);
  pinned_like(x_).copy_(device, /*non_blocking=*/true);
  EXPECT_EQ(counters().host_waits, before.host_waits);
}

}  // namespace
}  // namespace sim
