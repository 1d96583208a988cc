#include "unisono/data/readers/text_dataset.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/pad_to_longest.h"
#include "unisono/data/readers/labeled_text.h"
#include "unisono/data/readers/vocabulary.h"

namespace unisono {

TextDataset::TextDataset(std::span<const LabeledText> texts,
                         const Vocabulary& vocabulary,
                         std::size_t max_tokens) {
  samples_.reserve(texts.size());
  for (const LabeledText& text : texts) {
    samples_.push_back({.tokens = vocabulary.encode(text.text, max_tokens), .label = text.label});
  }
}

std::vector<std::int64_t> TextDataset::lengths() const {
  std::vector<std::int64_t> lengths;
  lengths.reserve(samples_.size());
  for (const TokenSample& sample : samples_) {
    lengths.push_back(static_cast<std::int64_t>(sample.tokens.size()));
  }
  return lengths;
}

}  // namespace unisono
