#include <chrono>
#include <string>
#include <thread>
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

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// Work on two streams of a device.
class Order : public QuietEnd {
 protected:
  // The later stream waits for an event of the earlier one.
  static void order(const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event(c10::kPrivateUse1);
    event.record(earlier);
    event.block(later);
  }

  // Returns the races so far, all streams idle.
  static std::vector<std::string> races() {
    synchronize_all();
    return take_races();
  }

  const at::Device device_ = sim_device(0);
  const c10::impl::VirtualGuardImpl guard_{c10::kPrivateUse1};
  const c10::Stream main_ = guard_.getStream(device_);
  const c10::Stream side_ = guard_.getStreamFromGlobalPool(device_);
  const at::Tensor x_ = at::randn({64, 64});
  const at::Tensor d_ = x_.to(device_);
};

TEST_F(Order, AMissingWaitIsReportedWithOperationsAndStreams) {
  const at::Tensor product = d_.mm(d_);
  {
    const c10::StreamGuard guard(side_);
    at::Tensor sum = product + 1;
  }
  EXPECT_THAT(
      races(),
      Contains(AllOf(HasSubstr("aten::add reads on sim:0 stream " + std::to_string(side_.id())),
                     HasSubstr("aten::mm writes on sim:0 stream 0"))));
}

TEST_F(Order, AMissingWaitIsReportedEachTime) {
  for (int i = 0; i < 50; ++i) {
    const at::Tensor product = d_.mm(d_);
    {
      const c10::StreamGuard guard(side_);
      at::Tensor sum = product + 1;
    }
    EXPECT_THAT(races(), Not(IsEmpty()));
  }
}

TEST_F(Order, WithAWaitTheResultIsRight) {
  for (int i = 0; i < 50; ++i) {
    const at::Tensor product = d_.mm(d_);
    order(main_, side_);
    {
      const c10::StreamGuard guard(side_);
      EXPECT_TRUE(same_bits(product + 1, x_.mm(x_) + 1));
    }
  }
}

TEST_F(Order, AWaitInTheWrongOrderIsReported) {
  c10::Event event(c10::kPrivateUse1);
  event.record(main_);  // Before the product.
  const at::Tensor product = d_.mm(d_);
  event.block(side_);
  {
    const c10::StreamGuard guard(side_);
    at::Tensor sum = product + 1;
  }
  EXPECT_THAT(races(), Not(IsEmpty()));
}

TEST_F(Order, AQueryThatSucceedsOrders) {
  const at::Tensor product = d_.mm(d_);
  c10::Event event(c10::kPrivateUse1);
  event.record(main_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!event.query() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  const c10::StreamGuard guard(side_);
  EXPECT_TRUE(same_bits(product + 1, x_.mm(x_) + 1));
}

TEST_F(Order, AMissingRecordStreamIsReported) {
  {
    const at::Tensor product = d_.mm(d_);
    order(main_, side_);
    const c10::StreamGuard guard(side_);
    at::Tensor sum = product + 1;
  }
  EXPECT_THAT(races(),
              Contains(AllOf(HasSubstr("the release of the memory writes on sim:0 stream 0"),
                             HasSubstr("record_stream"))));
}

TEST_F(Order, WithRecordStreamTheTensorMayGo) {
  for (int i = 0; i < 50; ++i) {
    at::Tensor sum;
    {
      const at::Tensor product = d_.mm(d_);
      order(main_, side_);
      const c10::StreamGuard guard(side_);
      sum = product + 1;
      product.record_stream(side_);
    }
    const at::Tensor other = at::zeros({64, 64}, d_.options());
    const c10::StreamGuard guard(side_);
    EXPECT_TRUE(same_bits(sum, x_.mm(x_) + 1));
  }
}

TEST_F(Order, HalvesOfABucketOnTwoStreamsAreNoRace) {
  const at::Tensor bucket = at::zeros({64}, d_.options());
  synchronize_all();
  const auto fill = [&](const c10::Stream& stream, int from, int to) {
    const c10::StreamGuard guard(stream);
    bucket.slice(0, from, to).fill_(1);
  };
  fill(main_, 0, 32);
  fill(side_, 32, 64);
  EXPECT_THAT(take_races(), IsEmpty());
  fill(main_, 31, 40);
  EXPECT_THAT(races(), Not(IsEmpty()));
}

TEST_F(Order, TheOptimizerMustWaitForTheCommunication) {
  const at::Tensor gradient = d_.mm(d_);
  at::Tensor weight = d_.clone();
  order(main_, side_);
  {
    const c10::StreamGuard guard(side_);
    gradient.mul_(0.5);
  }
  weight.add_(gradient);
  EXPECT_THAT(races(), Contains(HasSubstr("that aten::mul writes on sim:0")));
}

// The schema of the operator conceals these writes.
TEST_F(Order, RunningStatisticsAreWritten) {
  const at::Tensor mean = at::zeros({64}, d_.options());
  const at::Tensor variance = at::ones({64}, d_.options());
  const c10::StreamGuard guard(side_);
  order(main_, side_);
  at::Tensor y = at::batch_norm(d_, {}, {}, mean, variance, true, 0.1, 1e-5, false);
  const c10::StreamGuard back(main_);
  at::Tensor next = mean + 1;
  EXPECT_THAT(races(), Contains(HasSubstr("that aten::native_batch_norm writes")));
}

// A pinned buffer belongs to the checker as well: the side stream reads it before it is filled.
TEST_F(Order, PinnedMemoryBetweenStreamsNeedsAWait) {
  const at::Tensor pinned = at::empty({64, 64}, at::TensorOptions(at::kFloat).pinned_memory(true));
  pinned.copy_(d_.mm(d_), /*non_blocking=*/true);
  {
    const c10::StreamGuard guard(side_);
    at::Tensor back = pinned.to(device_, /*non_blocking=*/true);
  }
  EXPECT_THAT(races(), SizeIs(1));
}

TEST_F(Order, AnEventBelongsToTheDeviceOfItsFirstStream) {
  c10::Event event(c10::kPrivateUse1);
  event.record(main_);
  EXPECT_THROW(event.record(guard_.getDefaultStream(sim_device(1))), c10::Error);
}

TEST_F(Order, HostWaitsOrderAllStreams) {
  const at::Tensor product = d_.mm(d_);
  c10::Event event(c10::kPrivateUse1);
  event.record(main_);
  event.synchronize();
  const c10::StreamGuard guard(side_);
  EXPECT_TRUE(same_bits(product + 1, x_.mm(x_) + 1));
}

}  // namespace
}  // namespace sim
