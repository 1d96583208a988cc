#pragma once

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include "sim_device/quiet_end.h"
#include "sim_device/sim_device.h"

namespace unisono::testing {

/// Returns a simulated device.
inline at::Device sim(int index = 0) {
  return {at::kPrivateUse1, static_cast<at::DeviceIndex>(index)};
}

/// Returns true if the tensors have the same type, sizes and bits, on whatever devices, or are both
/// undefined.
inline bool has_same_bits(const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined() || !other.defined()) {
    return one.defined() == other.defined();
  }
  const at::Tensor x = one.detach().cpu().contiguous();
  const at::Tensor y = other.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// Returns the number of different elements and the first of them.
inline std::string describe_difference(const at::Tensor& one, const at::Tensor& other) {
  std::ostringstream text;
  if (!one.defined() || !other.defined()) {
    return "one is undefined";
  }
  const at::Tensor x = one.detach().cpu().reshape({-1});
  const at::Tensor y = other.detach().cpu().reshape({-1});
  if (one.sizes() != other.sizes() || x.scalar_type() != y.scalar_type()) {
    text << one.toString() << one.sizes() << " and " << other.toString() << other.sizes();
    return text.str();
  }
  const at::Tensor places = x.ne(y).nonzero();
  text << places.size(0) << " of " << x.numel() << " elements";
  if (places.size(0) > 0) {
    const auto first = places[0][0].item<std::int64_t>();
    text.precision(17);
    text << ", the first number " << first << ": " << x[first].item<double>() << " and "
         << y[first].item<double>();
  }
  return text.str();
}

inline void expect_same_bits(const std::vector<at::Tensor>& ones,
                             const std::vector<at::Tensor>& others,
                             const std::string& what) {
  ASSERT_EQ(ones.size(), others.size()) << what;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    EXPECT_TRUE(has_same_bits(ones[i], others[i]))
        << what << ", tensor " << i << ": " << describe_difference(ones[i], others[i]);
  }
}

/// A test on simulated devices, which must leave no pending error and no race behind. Operators run
/// on one thread, as on the devices, so that bits are comparable.
class SimTest : public ::sim::QuietEnd {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

}  // namespace unisono::testing
