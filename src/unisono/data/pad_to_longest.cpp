#include "unisono/data/pad_to_longest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace unisono {

PaddedBatch PadToLongest::operator()(const std::vector<TokenSample>& samples) const {
  std::size_t longest = 0;
  for (const TokenSample& sample : samples) {
    longest = std::max(longest, sample.tokens.size());
  }
  PaddedBatch batch{.longest = static_cast<std::int64_t>(longest),
                    .tokens = std::vector<std::int64_t>(samples.size() * longest, pad_token),
                    .lengths = {},
                    .labels = {}};
  auto row = batch.tokens.begin();
  for (const TokenSample& sample : samples) {
    std::ranges::copy(sample.tokens, row);
    row += static_cast<std::ptrdiff_t>(longest);
    batch.lengths.push_back(static_cast<std::int64_t>(sample.tokens.size()));
    batch.labels.push_back(sample.label);
  }
  return batch;
}

}  // namespace unisono
