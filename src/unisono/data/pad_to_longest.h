#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace unisono {

/// A text as the numbers of its tokens, and its label.
struct TokenSample {
  std::vector<std::int64_t> tokens;
  std::int64_t label = 0;
};

/// Texts of one batch in a table, a row each, as wide as the longest of them.
struct PaddedBatch {
  std::int64_t longest = 0;           ///< Columns.
  std::vector<std::int64_t> tokens;   ///< size() * longest, row by row.
  std::vector<std::int64_t> lengths;  ///< Tokens of each text that are no padding.
  std::vector<std::int64_t> labels;

  /// Rows.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(lengths.size()); }

  /// A text with its padding. `place` is below size().
  [[nodiscard]] std::span<const std::int64_t> row(std::size_t place) const {
    const auto n_columns = static_cast<std::size_t>(longest);
    return std::span(tokens).subspan(place * n_columns, n_columns);
  }
};

/// Makes a batch of texts of different lengths: what CollatingLoader collates by.
struct PadToLongest {
  std::int64_t pad_token = 0;

  [[nodiscard]] PaddedBatch operator()(const std::vector<TokenSample>& samples) const;
};

}  // namespace unisono
