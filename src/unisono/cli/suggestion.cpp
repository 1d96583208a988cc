#include "unisono/cli/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/edit_distance.h"

namespace unisono::cli {

std::string suggestion(std::string_view typed,
                       std::span<const std::string> names,
                       std::string_view prefix) {
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
    const std::size_t found = is_part ? 1 : edit_distance(wanted, name);
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
  return fmt::format("; did you mean {}{}?", prefix, meant);
}

bool starts_with_typographic_dash(std::string_view text) {
  // U+2010 to U+2015, and the minus sign.
  constexpr std::array<std::string_view, 7> kDashes{
      "\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"};
  return std::ranges::any_of(kDashes,
                             [text](std::string_view dash) { return text.starts_with(dash); });
}

}  // namespace unisono::cli
