// Labeled texts, one per line, and their tokens.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/datasets/text.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

namespace datasets = unisono::datasets;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    const std::vector<datasets::LabeledText> texts = datasets::read_labeled_tsv(file.path());
    const datasets::Vocabulary vocabulary = datasets::Vocabulary::of(texts);
    const datasets::TextDataset dataset(texts, vocabulary);
    for (std::int64_t index = 0; index < dataset.size(); ++index) {
      expect(dataset.sample(index).label >= 0, "labels are not negative");
      for (const std::int64_t token : dataset.sample(index).tokens) {
        expect(token >= 0 && token < vocabulary.ntokens(), "tokens are of the vocabulary");
      }
    }
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
