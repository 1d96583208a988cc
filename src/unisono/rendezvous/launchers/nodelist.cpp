#include "unisono/rendezvous/launchers/nodelist.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/text_lines.h"

namespace unisono::rendezvous {
namespace {

using Names = std::vector<std::string>;

// Walks over a list from its first character to its last.
class Parser {
 public:
  explicit Parser(std::string_view list) : list_(list) {}

  Names names() {
    Names names;
    do {
      const Names next = name();
      if (names.size() + next.size() > kMaxNodes) {
        fail(fmt::format("more than {} names", kMaxNodes));
      }
      names.insert(names.end(), next.begin(), next.end());
    } while (skip(','));
    return names;
  }

 private:
  // Up to a comma outside of brackets, or the end.
  Names name() {
    const std::size_t start = position_;
    Names names{""};
    while (!is_at_end() && list_[position_] != ',') {
      if (skip('[')) {
        names = joined(names, brackets());
        continue;
      }
      const char letter = list_[position_];
      if (letter == ']' || static_cast<unsigned char>(letter) <= ' ') {
        fail(letter == ']' ? "nothing opens this bracket" : "a blank");
      }
      for (std::string& name : names) {
        name += letter;
      }
      ++position_;
    }
    if (position_ == start) {
      fail("a name is missing");
    }
    return names;
  }

  // What stands between brackets: numbers and ranges with commas between them.
  Names brackets() {
    const std::size_t open = position_ - 1;
    Names texts;
    do {
      add_range(texts);
    } while (skip(','));
    if (!skip(']')) {
      fail_at(
          is_at_end() ? open : position_,
          is_at_end() ? "nothing closes this bracket" : "neither number, \"-\", \",\" nor \"]\"");
    }
    return texts;
  }

  void add_range(Names& texts) {
    const std::size_t start = position_;
    const auto [from, n_digits] = number();
    const std::uint64_t to = skip('-') ? number().value : from;
    if (to < from) {
      fail_at(start, "the range ends before it begins");
    }
    if (to - from >= kMaxNodes || texts.size() + (to - from) >= kMaxNodes) {
      fail_at(start, fmt::format("more than {} names", kMaxNodes));
    }
    for (std::uint64_t value = from; value <= to; ++value) {
      texts.push_back(fmt::format("{:0{}}", value, n_digits));
    }
  }

  struct Number {
    std::uint64_t value = 0;
    std::size_t n_digits;
  };

  Number number() {
    // Enough for any machine, and far from where sums overflow.
    constexpr std::size_t kMaxDigits = 18;
    const std::string_view rest = list_.substr(position_);
    const std::string_view text = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (text.empty() || text.size() > kMaxDigits) {
      fail(text.empty() ? "a number is missing" : "too large a number");
    }
    Number number{.n_digits = text.size()};
    (void)std::from_chars(text.data(), text.data() + text.size(), number.value);
    position_ += text.size();
    return number;
  }

  [[nodiscard]] Names joined(const Names& heads, const Names& tails) const {
    if (heads.size() * tails.size() > kMaxNodes) {
      fail(fmt::format("more than {} names", kMaxNodes));
    }
    Names names;
    names.reserve(heads.size() * tails.size());
    for (const std::string& head : heads) {
      std::transform(tails.begin(), tails.end(), std::back_inserter(names), [&](const auto& tail) {
        return head + tail;
      });
    }
    return names;
  }

  bool skip(char letter) {
    const bool is_there = !is_at_end() && list_[position_] == letter;
    position_ += is_there ? 1 : 0;
    return is_there;
  }

  [[nodiscard]] bool is_at_end() const { return position_ == list_.size(); }

  [[noreturn]] void fail(const std::string& problem) const { fail_at(position_, problem); }

  [[noreturn]] void fail_at(std::size_t position, const std::string& problem) const {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "node list \"{}\", character {}: {}", escape_text(list_), position + 1, problem));
  }

  std::string_view list_;
  std::size_t position_ = 0;
};

// A number from 1 at the front of `rest`, which it leaves; nothing if there is none.
std::optional<int> take_count(std::string_view& rest) {
  int count = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
  if (error != std::errc() || count < 1) {
    return std::nullopt;
  }
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return count;
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view list) {
  return Parser(list).names();
}

std::optional<std::vector<int>> expand_counts(std::string_view rest) {
  std::vector<int> counts;
  while (true) {
    const std::optional<int> count = take_count(rest);
    std::optional<int> times = 1;
    if (rest.starts_with("(x")) {
      rest.remove_prefix(2);
      times = take_count(rest);
      if (!rest.starts_with(')')) {
        return std::nullopt;
      }
      rest.remove_prefix(1);
    }
    if (!count || !times || counts.size() + static_cast<std::size_t>(*times) > kMaxNodes) {
      return std::nullopt;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
    if (rest.empty()) {
      return counts;
    }
    if (rest.front() != ',') {
      return std::nullopt;
    }
    rest.remove_prefix(1);
  }
}

}  // namespace unisono::rendezvous
