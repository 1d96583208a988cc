#include "unisono/base/left_behind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/base/text_lines.h"

namespace unisono {
namespace {

constexpr std::size_t kMostLeftOutNames = 3;

// In small letters: Windows and macOS do not tell capitals from small letters.
constexpr std::array<std::string_view, 17> kLeftBehindNames{
    "__macosx",                   // macOS, in archives
    "icon\r",                     // macOS
    "network trash folder",       // macOS file server
    "temporary items",            // macOS file server
    "$recycle.bin",               // Windows
    "recycler",                   // Windows
    "system volume information",  // Windows
    "desktop.ini",                // Windows
    "thumbs.db",                  // Windows
    "ehthumbs.db",                // Windows
    "lost+found",                 // Linux
    "@eadir",                     // Synology
    "#recycle",                   // Synology
    "#snapshot",                  // Synology
    "@recycle",                   // QNAP
    "@recently-snapshot",         // QNAP
    "__pycache__"};               // Python

bool is_left_behind_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") {
    return false;
  }
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return name.starts_with('.') ||
         std::ranges::find(kLeftBehindNames, lower) != kLeftBehindNames.end();
}

std::string some_of(const std::vector<std::string>& first, std::size_t n_entries) {
  return fmt::format("{}{}", fmt::join(first, ", "), n_entries > first.size() ? ", ..." : "");
}

}  // namespace

bool is_left_behind(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    if (is_left_behind_name(path.substr(0, slash))) {
      return true;
    }
    if (slash == std::string_view::npos) {
      return false;
    }
    path.remove_prefix(slash + 1);
  }
}

void LeftOut::add(std::string_view path) {
  Kind& kind = is_left_behind(path) ? left_behind_ : others_;
  ++kind.n_entries;
  if (kind.first.size() < kMostLeftOutNames) {
    kind.first.push_back(escape_text(path));
  }
}

void LeftOut::report(const Logger& logger, std::string_view where) const {
  std::vector<std::string> kinds;
  if (left_behind_.n_entries > 0) {
    kinds.push_back(fmt::format("{} of systems and tools ({})",
                                left_behind_.n_entries,
                                some_of(left_behind_.first, left_behind_.n_entries)));
  }
  if (others_.n_entries > 0) {
    kinds.push_back(fmt::format(
        "{} of other types ({})", others_.n_entries, some_of(others_.first, others_.n_entries)));
  }
  if (!kinds.empty()) {
    logger.info(fmt::format("{}: entries left out: {}", where, fmt::join(kinds, ", ")));
  }
}

}  // namespace unisono
