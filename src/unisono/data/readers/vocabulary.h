#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "unisono/data/readers/labeled_text.h"

namespace unisono {

struct VocabularyOptions {
  /// Most tokens, with the two that no text has.
  std::size_t max_tokens = 20'000;
  /// Rarer tokens are unknown ones.
  std::int64_t min_count = 1;
};

/// Numbers for tokens. Number 0 pads texts, 1 stands for every unknown token.
class Vocabulary {
 public:
  static constexpr std::int64_t kPad = 0;
  static constexpr std::int64_t kUnknown = 1;

  /// The most frequent tokens of the texts, the most frequent first; those that are equally
  /// frequent by their bytes. So it is the same on every rank, and does not depend on the order of
  /// the texts.
  ///
  /// Throws Error(kInvalidArgument) when max_tokens has no room for the first two.
  [[nodiscard]] static Vocabulary of(std::span<const LabeledText> texts,
                                     const VocabularyOptions& options = {});

  /// What tokens() of a vocabulary has returned: saved, and loaded again.
  ///
  /// Throws Error(kInvalidArgument) when a token is there twice, or there are less than two.
  explicit Vocabulary(std::vector<std::string> tokens);

  /// How many numbers there are: the rows of an embedding.
  [[nodiscard]] std::int64_t ntokens() const { return static_cast<std::int64_t>(tokens_.size()); }

  /// All tokens, by number.
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }

  /// A token's number; kUnknown where it has none.
  [[nodiscard]] std::int64_t number(std::string_view token) const;

  /// The numbers of a text's tokens, of the first `max_tokens` of them.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text,
                                                 std::size_t max_tokens = SIZE_MAX) const;

 private:
  // Finds a std::string by a std::string_view.
  struct Hash {
    using is_transparent = void;

    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> numbers_;
};

}  // namespace unisono
