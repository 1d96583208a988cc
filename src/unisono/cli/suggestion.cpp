#include "unisono/cli/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::cli {
namespace {

// Levenshtein's: how many letters have to be put in, taken away or replaced.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view typed, std::span<const std::string> names) {
  constexpr std::size_t kShortest = 3;
  std::string wanted(typed.substr(0, typed.find('=')));
  wanted.erase(0, std::min(wanted.find_first_not_of('-'), wanted.size()));
  const bool has_underscores = wanted.find('_') != std::string::npos;
  std::ranges::replace(wanted, '_', '-');
  if (wanted.size() < kShortest) {
    return "";
  }
  const std::string* best = nullptr;
  // A third of the letters may be wrong, or only the end be too much or missing.
  std::size_t best_distance = wanted.size() / 3 + 1;
  for (const std::string& name : names) {
    const bool is_part =
        name.size() >= kShortest && (name.starts_with(wanted) || wanted.starts_with(name));
    const std::size_t found = is_part ? 1 : distance(wanted, name);
    if (found < best_distance) {
      best = &name;
      best_distance = found;
    }
  }
  if (best == nullptr) {
    return "";
  }
  std::string meant = *best;
  if (has_underscores) {
    std::ranges::replace(meant, '-', '_');
  }
  return fmt::format("; did you mean --{}?", meant);
}

bool starts_with_typographic_dash(std::string_view text) {
  // U+2010 to U+2015, and the minus sign.
  constexpr std::array<std::string_view, 7> kDashes{
      "\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"};
  return std::ranges::any_of(kDashes,
                             [text](std::string_view dash) { return text.starts_with(dash); });
}

}  // namespace unisono::cli
