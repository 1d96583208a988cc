#include "unisono/data/readers/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/text_lines.h"
#include "unisono/data/readers/labeled_text.h"
#include "unisono/data/readers/tokenizer.h"

namespace unisono {
namespace {

constexpr const char* kPadText = "<pad>";
constexpr const char* kUnknownText = "<unk>";
constexpr std::size_t kSpecialTokens = 2;

struct CountedToken {
  std::string token;
  std::int64_t count;
};

std::vector<CountedToken> count_tokens(std::span<const LabeledText> texts) {
  std::unordered_map<std::string, std::int64_t> counts;
  for (const LabeledText& text : texts) {
    for (std::string& token : tokenize(text.text)) {
      ++counts[std::move(token)];
    }
  }
  // Texts that have them don't make them other tokens.
  counts.erase(kPadText);
  counts.erase(kUnknownText);
  std::vector<CountedToken> counted;
  counted.reserve(counts.size());
  for (const auto& [token, count] : counts) {
    counted.push_back({.token = token, .count = count});
  }
  std::ranges::sort(counted, [](const CountedToken& one, const CountedToken& other) {
    return std::pair(-one.count, std::string_view(one.token)) <
           std::pair(-other.count, std::string_view(other.token));
  });
  return counted;
}

}  // namespace

Vocabulary Vocabulary::of(std::span<const LabeledText> texts, const VocabularyOptions& options) {
  std::vector<std::string> tokens{kPadText, kUnknownText};
  if (options.max_tokens < tokens.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Vocabulary: max_tokens is {}; {} and {} need room",
                            options.max_tokens,
                            kPadText,
                            kUnknownText));
  }
  for (CountedToken& counted : count_tokens(texts)) {
    if (tokens.size() == options.max_tokens || counted.count < options.min_count) {
      break;
    }
    tokens.push_back(std::move(counted.token));
  }
  return Vocabulary(std::move(tokens));
}

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.size() < kSpecialTokens) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Vocabulary: {} tokens; the first two pad and stand for unknown ones",
                            tokens_.size()));
  }
  for (std::size_t number = 0; number < tokens_.size(); ++number) {
    if (!numbers_.try_emplace(tokens_[number], static_cast<std::int64_t>(number)).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("Vocabulary: token {}, \"{}\", is there twice",
                              number,
                              escape_text(tokens_[number])));
    }
  }
}

std::int64_t Vocabulary::number(std::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? kUnknown : found->second;
}

std::vector<std::int64_t> Vocabulary::encode(std::string_view text, std::size_t max_tokens) const {
  std::vector<std::int64_t> numbers;
  for (const std::string& token : tokenize(text)) {
    if (numbers.size() == max_tokens) {
      break;
    }
    numbers.push_back(number(token));
  }
  return numbers;
}

}  // namespace unisono
