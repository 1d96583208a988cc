#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/pad_to_longest.h"
#include "unisono/data/readers/labeled_text.h"
#include "unisono/data/readers/vocabulary.h"

namespace unisono {

/// Texts in memory as the numbers of their tokens: for CollatingLoader with PadToLongest.
class TextDataset {
 public:
  /// Of each text the first `max_tokens`. Takes 8 bytes a token.
  TextDataset(std::span<const LabeledText> texts,
              const Vocabulary& vocabulary,
              std::size_t max_tokens = SIZE_MAX);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(samples_.size()); }

  /// Text `index`, 0 <= index < size().
  [[nodiscard]] const TokenSample& sample(std::int64_t index) const {
    return samples_[static_cast<std::size_t>(index)];
  }

  /// Tokens of each text: what LengthBucketedSampler asks for.
  [[nodiscard]] std::vector<std::int64_t> lengths() const;

 private:
  std::vector<TokenSample> samples_;
};

}  // namespace unisono
