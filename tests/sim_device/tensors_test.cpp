#include <sstream>
#include <string>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/native/Resize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim_device/quiet_end.h"
#include "sim_device/test_tensors.h"

namespace sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Tensors : public QuietEnd {
 protected:
  const at::Tensor x_ = at::randn({5, 7});
  const at::Tensor d_ = x_.to(sim_device(0));
};

TEST_F(Tensors, TheDeviceIsTheAccelerator) {
  EXPECT_EQ(at::accelerator::getAccelerator(), c10::kPrivateUse1);
  EXPECT_EQ(at::accelerator::deviceCount(), kDeviceCount);
  EXPECT_EQ(sim_device(2).str(), "sim:2");
  EXPECT_EQ(c10::Device("sim:2"), sim_device(2));
}

TEST_F(Tensors, KeepTheirBitsOnTheWayToTheDeviceAndBack) {
  EXPECT_EQ(d_.device(), sim_device(0));
  EXPECT_TRUE(same_bits(d_, x_));
  EXPECT_TRUE(is_device_pointer(d_.const_data_ptr()));
  EXPECT_FALSE(is_device_pointer(x_.const_data_ptr()));
}

TEST_F(Tensors, OfEachTypeTravel) {
  for (const auto type : {at::kByte,
                          at::kChar,
                          at::kShort,
                          at::kInt,
                          at::kLong,
                          at::kHalf,
                          at::kFloat,
                          at::kDouble,
                          at::kComplexHalf,
                          at::kComplexFloat,
                          at::kComplexDouble,
                          at::kBool,
                          at::kBFloat16,
                          at::kFloat8_e5m2,
                          at::kFloat8_e4m3fn,
                          at::kUInt16,
                          at::kUInt32,
                          at::kUInt64}) {
    const at::Tensor ones = at::ones({4}).to(type);
    const at::Tensor device = ones.to(sim_device(0));
    EXPECT_TRUE(same_bits(device, ones)) << type;
    EXPECT_TRUE(same_bits(device.clone(), ones)) << type;
    EXPECT_TRUE(same_bits(at::zeros({3}, device.options()), at::zeros({3}, ones.options())))
        << type;
  }
}

TEST_F(Tensors, ViewsShareMemory) {
  EXPECT_TRUE(same_bits(d_.t().contiguous(), x_.t().contiguous()));
  EXPECT_TRUE(same_bits(d_.select(1, 3), x_.select(1, 3)));
  EXPECT_TRUE(same_bits(d_.view({7, 5}).sum(0), x_.view({7, 5}).sum(0)));
  d_.view({35}).slice(0, 3, 9).fill_(2);
  x_.view({35}).slice(0, 3, 9).fill_(2);
  EXPECT_TRUE(same_bits(d_, x_));
}

TEST_F(Tensors, MixWithNumbersAndCpuScalars) {
  EXPECT_TRUE(same_bits(d_ + 2 * d_.mm(d_.t()).sum(), x_ + 2 * x_.mm(x_.t()).sum()));
  EXPECT_TRUE(same_bits(d_ + at::ones({}), x_ + at::ones({})));
  EXPECT_EQ(d_.sum().item<float>(), x_.sum().item<float>());
}

TEST_F(Tensors, AreMadeByFactories) {
  const auto options = at::TensorOptions(sim_device(1));
  EXPECT_TRUE(same_bits(at::arange(10, options), at::arange(10)));
  EXPECT_TRUE(same_bits(at::eye(3, options), at::eye(3)));
  EXPECT_TRUE(same_bits(at::linspace(0, 1, 5, options), at::linspace(0, 1, 5)));
  EXPECT_EQ(at::arange(0, 1.5, 0.5, options).numel(), 3);
  EXPECT_EQ(at::arange(0, 2.5, 0.5, options).numel(), 5);
}

TEST_F(Tensors, HaveShapesThatDependOnValues) {
  EXPECT_TRUE(same_bits(d_.index({d_ > 0}), x_.index({x_ > 0})));
  EXPECT_TRUE(same_bits(d_.nonzero(), x_.nonzero()));
  EXPECT_TRUE(at::equal(d_, d_.clone()));
}

TEST_F(Tensors, FreshMemoryIsNan) {
  EXPECT_TRUE(at::empty({4}, at::TensorOptions(sim_device(0))).cpu().isnan().all().item<bool>());
}

TEST_F(Tensors, GrowAndShrink) {
  at::Tensor grown = d_.clone();
  grown.resize_({100});
  EXPECT_TRUE(same_bits(grown.slice(0, 0, 35), x_.view(-1)));
  at::Tensor out = at::empty({0}, d_.options());
  at::add_out(out, d_, d_);
  EXPECT_TRUE(same_bits(out, x_ + x_));
}

// The kernel first gives its result the size of the arguments, so the result moves on its way.
TEST_F(Tensors, AKernelMayResizeItsResult) {
  at::Tensor out = at::empty({0}, d_.options());
  at::mse_loss_out(out, d_, d_ * 2);
  EXPECT_TRUE(same_bits(out, at::mse_loss(x_, x_ * 2)));
}

TEST_F(Tensors, AStorageCanBeFreedAndReturn) {
  const at::Tensor ones = at::ones({10}, d_.options());
  const auto allocated = [] {
    return at::accelerator::getDeviceStats(0).allocated_bytes[0].current;
  };
  const auto before = allocated();
  at::native::resize_bytes_nocuda(ones.storage(), 0);
  EXPECT_LT(allocated(), before);
  at::native::resize_bytes_nocuda(ones.storage(), 40);
  ones.fill_(2);
  EXPECT_TRUE(same_bits(ones, at::full({10}, 2.0)));
}

TEST_F(Tensors, AShapeErrorIsThrownAtTheCall) {
  EXPECT_THROW(d_.mm(d_), c10::Error);
}

TEST_F(Tensors, DevicesDoNotMix) {
  try {
    at::Tensor sum = d_ + x_;
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("same device, but found at least two devices, sim:0 and cpu"));
  }
  EXPECT_THROW(d_ + x_.to(sim_device(1)), c10::Error);
}

TEST_F(Tensors, AnErrorInATaskIsThrownLate) {
  const at::Tensor index = at::full({1}, 9, at::kLong).to(sim_device(0));
  at::Tensor selected = d_.index_select(0, index);
  EXPECT_THROW(at::accelerator::synchronizeDevice(0), c10::Error);
  selected = d_.index_select(0, index);
  synchronize_all();
  EXPECT_THAT(take_errors(), ElementsAre(HasSubstr("out of range")));
}

TEST_F(Tensors, RandomNumbersEqualTheCpusInTheOrderOfCalls) {
  const auto options = at::TensorOptions(sim_device(0));
  at::manual_seed(3);
  const auto cpu = std::tuple(at::randn({1000}), at::rand({10}), at::randperm(20));
  at::manual_seed(3);
  const auto sim =
      std::tuple(at::randn({1000}, options), at::rand({10}, options), at::randperm(20, options));
  EXPECT_TRUE(same_bits(std::get<0>(cpu), std::get<0>(sim)));
  EXPECT_TRUE(same_bits(std::get<1>(cpu), std::get<1>(sim)));
  EXPECT_TRUE(same_bits(std::get<2>(cpu), std::get<2>(sim)));
}

TEST_F(Tensors, ArePrinted) {
  std::ostringstream text;
  text << d_.slice(0, 0, 1);
  EXPECT_THAT(text.str(), HasSubstr("sim"));
}

TEST_F(Tensors, ConjugateLazily) {
  const at::Tensor c = at::randn({4}, at::kComplexFloat);
  const at::Tensor d = c.to(sim_device(0));
  EXPECT_TRUE(same_bits(d.conj(), c.conj()));
  EXPECT_TRUE(same_bits(at::view_as_real(d * d.conj()), at::view_as_real(c * c.conj())));
}

TEST_F(Tensors, AHostAccessEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*at::ones({1}, at::TensorOptions(sim_device(3))).data_ptr<float>() = 1,
               "host code touched memory of device sim:3");
}

}  // namespace
}  // namespace sim
