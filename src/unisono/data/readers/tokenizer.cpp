#include "unisono/data/readers/tokenizer.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace unisono {
namespace {

constexpr std::string_view kLineBreak = "<br />";

// Not std::isspace() and std::tolower(): the locale must make no difference.
bool is_space(char character) {
  return std::string_view(" \t\n\v\f\r").find(character) != std::string_view::npos;
}

char to_lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                              : character;
}

bool starts_with_line_break(std::string_view text) {
  if (text.size() < kLineBreak.size()) {
    return false;
  }
  for (std::size_t i = 0; i < kLineBreak.size(); ++i) {
    if (to_lower(text[i]) != kLineBreak[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> tokenize(std::string_view text) {
  constexpr std::string_view kOwnTokens = "'.,()!?";
  constexpr std::string_view kSeparators = ";:";
  std::vector<std::string> tokens;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) {
      tokens.push_back(std::exchange(word, {}));
    }
  };
  while (!text.empty()) {
    const char character = text.front();
    std::size_t n_used = 1;
    if (is_space(character) || kSeparators.find(character) != std::string_view::npos) {
      end_word();
    } else if (kOwnTokens.find(character) != std::string_view::npos) {
      end_word();
      tokens.emplace_back(1, character);
    } else if (starts_with_line_break(text)) {
      end_word();
      n_used = kLineBreak.size();
    } else if (character != '"') {
      word += to_lower(character);
    }
    text.remove_prefix(n_used);
  }
  end_word();
  return tokens;
}

}  // namespace unisono
