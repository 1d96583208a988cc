#include "unisono/torch/ddp/features/replica_consistency.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace unisono::ddp {
namespace {

std::vector<NamedTensor> zeros_of(const std::vector<std::int64_t>& counts) {
  std::vector<NamedTensor> tensors;
  for (const std::int64_t count : counts) {
    tensors.push_back({.name = "w", .tensor = at::zeros({count})});
  }
  return tensors;
}

std::vector<std::uint16_t> take_all(const std::vector<NamedTensor>& parameters, std::size_t n) {
  ParameterSamples samples(parameters);
  std::vector<std::uint16_t> all;
  for (std::size_t i = 0; i < n; ++i) {
    all.push_back(samples.take());
  }
  return all;
}

// Returns the number of samples that differ if only element `at`, counted over all tensors, changes
// from 0 to 1.
std::size_t n_different(const std::vector<std::int64_t>& counts, std::int64_t at) {
  const std::vector<NamedTensor> ones = zeros_of(counts);
  for (const NamedTensor& parameter : ones) {
    if (at >= 0 && at < parameter.tensor.numel()) {
      parameter.tensor[at].fill_(1);
    }
    at -= parameter.tensor.numel();
  }
  const auto before = take_all(zeros_of(counts), ParameterSamples::kParts);
  const auto after = take_all(ones, ParameterSamples::kParts);
  std::size_t n = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    n += before[i] != after[i] ? 1 : 0;
  }
  return n;
}

TEST(ParameterSamples, OfALargeModelSeeEachElementOnce) {
  const std::vector<std::int64_t> counts{100000, 7, 0, 200001, 50000};
  for (const std::int64_t at : {0, 1, 99999, 100000, 100006, 100007, 250000, 300007, 350007}) {
    EXPECT_EQ(n_different(counts, at), 1U) << at;
  }
  EXPECT_EQ(n_different(counts, 350008), 0U) << "past the end";
}

TEST(ParameterSamples, OfASmallModelSeeEachElementEveryTime) {
  for (const std::int64_t at : {0, 99, 100, 300}) {
    EXPECT_EQ(n_different({100, 201}, at), ParameterSamples::kParts) << at;
  }
}

TEST(ParameterSamples, LeaveOutTensorsWithHoles) {
  const std::vector<NamedTensor> with_holes{
      {.name = "w", .tensor = at::zeros({4, 4}).slice(1, 1, 3)},
      {.name = "v", .tensor = at::zeros({4})}};
  const auto before = take_all(with_holes, 1);
  with_holes[0].tensor.fill_(1);
  EXPECT_EQ(take_all(with_holes, 1), before);
  with_holes[1].tensor.fill_(1);
  EXPECT_NE(take_all(with_holes, 1), before);
}

TEST(ParameterSamples, SkippedPartsCount) {
  const std::vector<NamedTensor> parameters = zeros_of({100000});
  ParameterSamples samples(parameters);
  samples.skip();
  EXPECT_EQ(samples.take(), take_all(parameters, 2)[1]);
}

}  // namespace
}  // namespace unisono::ddp
