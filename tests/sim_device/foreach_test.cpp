#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sim_device/quiet_end.h"
#include "sim_device/test_tensors.h"

namespace sim {
namespace {

using torch::Tensor;
using Values = std::vector<Tensor>;

/// Lists of parameters on the CPU and the same on the device.
class ForeachOperators : public QuietEnd {
 protected:
  ForeachOperators() {
    torch::set_num_threads(1);
    for (int i = 1; i < 5; ++i) {
      add(cpu_parameters_, parameters_, torch::randn({i * 3, 5}));
      add(cpu_gradients_, gradients_, torch::randn({i * 3, 5}));
      add(cpu_means_, means_, torch::zeros({i * 3, 5}));
      add(cpu_squares_, squares_, torch::zeros({i * 3, 5}));
      add(cpu_steps_, steps_, torch::ones({}));
    }
  }

  static void add(Values& cpu, Values& device, const Tensor& value) {
    cpu.push_back(value);
    device.push_back(value.to(sim_device(0)));
  }

  static void expect_same(const Values& cpu, const Values& device) {
    ASSERT_EQ(cpu.size(), device.size());
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_TRUE(same_bits(cpu[i], device[i])) << "tensor " << i;
    }
  }

  Values cpu_parameters_, parameters_;
  Values cpu_gradients_, gradients_;
  Values cpu_means_, means_;
  Values cpu_squares_, squares_;
  Values cpu_steps_, steps_;
};

TEST_F(ForeachOperators, HaveTheBitsOfTheCpu) {
  at::_foreach_add_(cpu_parameters_, cpu_gradients_, 0.5);
  at::_foreach_add_(parameters_, gradients_, 0.5);
  at::_foreach_mul_(cpu_parameters_, 1.5);
  at::_foreach_mul_(parameters_, 1.5);
  expect_same(cpu_parameters_, parameters_);
  expect_same(at::_foreach_norm(cpu_parameters_, 2), at::_foreach_norm(parameters_, 2));
  expect_same(at::_foreach_sqrt(at::_foreach_mul(cpu_gradients_, cpu_gradients_)),
              at::_foreach_sqrt(at::_foreach_mul(gradients_, gradients_)));
}

TEST_F(ForeachOperators, FusedOptimizersHaveTheBitsOfTheCpu) {
  at::_fused_adam_(cpu_parameters_,
                   cpu_gradients_,
                   cpu_means_,
                   cpu_squares_,
                   {},
                   cpu_steps_,
                   0.01,
                   0.9,
                   0.999,
                   0.1,
                   1e-8,
                   false,
                   false);
  at::_fused_adam_(parameters_,
                   gradients_,
                   means_,
                   squares_,
                   {},
                   steps_,
                   0.01,
                   0.9,
                   0.999,
                   0.1,
                   1e-8,
                   false,
                   false);
  expect_same(cpu_parameters_, parameters_);
  expect_same(cpu_squares_, squares_);
  at::_fused_sgd_(
      cpu_parameters_, cpu_gradients_, cpu_means_, 0.1, 0.9, 0.01, 0, true, false, false);
  at::_fused_sgd_(parameters_, gradients_, means_, 0.1, 0.9, 0.01, 0, true, false, false);
  expect_same(cpu_parameters_, parameters_);
  expect_same(cpu_means_, means_);
}

TEST_F(ForeachOperators, AnInfiniteGradientStaysOnTheDevice) {
  gradients_[2].view(-1)[3].fill_(std::numeric_limits<float>::infinity());
  const auto options = parameters_[0].options();
  Tensor found = torch::zeros({}, options);
  Tensor scale = torch::full({}, 1024.0, options);
  Tensor growth = torch::zeros({}, options.dtype(torch::kInt));
  const Counters before = counters();
  at::_amp_foreach_non_finite_check_and_unscale_(gradients_, found, scale.reciprocal());
  at::_fused_adam_(parameters_,
                   gradients_,
                   means_,
                   squares_,
                   {},
                   steps_,
                   0.01,
                   0.9,
                   0.999,
                   0.1,
                   1e-8,
                   false,
                   false,
                   scale,
                   found);
  at::_amp_update_scale_(scale, growth, found, 2.0, 0.5, 2000);
  EXPECT_EQ(counters().host_waits, before.host_waits);
  expect_same(cpu_parameters_, parameters_);
  EXPECT_EQ(found.item<float>(), 1);
  EXPECT_EQ(scale.item<float>(), 512);
}

}  // namespace
}  // namespace sim
