#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"

namespace unisono::data::testing {

using Indices = std::vector<std::int64_t>;

/// Sample i is {i, i + 0.5} and has the label -i. `on_load` runs before each load.
class Ramp final : public Dataset {
 public:
  explicit Ramp(std::int64_t size, std::function<void(std::int64_t)> on_load = nullptr)
      : size_(size), on_load_(std::move(on_load)) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] DType dtype() const override { return DType::kFloat32; }

  [[nodiscard]] Indices sample_shape() const override { return {2}; }

  [[nodiscard]] std::int64_t load(std::int64_t index, std::span<std::byte> into) const override {
    if (on_load_) {
      on_load_(index);
    }
    const std::array<float, 2> sample{static_cast<float>(index), static_cast<float>(index) + 0.5F};
    std::memcpy(into.data(), sample.data(), into.size());
    return -index;
  }

 private:
  std::int64_t size_;
  std::function<void(std::int64_t)> on_load_;
};

/// Returns 0, 1, ... count - 1.
inline Indices iota(std::int64_t count) {
  Indices indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// Returns the labels of each remaining batch of the pass, and checks that samples match their
/// labels.
inline std::vector<Indices> drain(DataLoader& loader) {
  std::vector<Indices> batches;
  while (const std::optional<Batch> batch = loader.next()) {
    const std::span<const float> values = batch->values<float>();
    EXPECT_EQ(values.size(), batch->labels().size() * 2);
    for (std::size_t place = 0; place < batch->labels().size(); ++place) {
      EXPECT_EQ(values[2 * place], static_cast<float>(-batch->labels()[place]));
      EXPECT_EQ(values[2 * place + 1], values[2 * place] + 0.5F);
    }
    batches.emplace_back(batch->labels().begin(), batch->labels().end());
  }
  return batches;
}

}  // namespace unisono::data::testing
