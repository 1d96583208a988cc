#include "unisono/cli/doctor/system_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/fd.h"

namespace unisono::cli::doctor {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

}  // namespace

std::optional<std::string> read_text(const std::filesystem::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    return std::nullopt;
  }
  std::string text;
  std::array<char, 4096> part{};
  while (text.size() < kMaxBytes) {
    const ssize_t n_bytes = ::read(file.get(), part.data(), part.size());
    if (n_bytes < 0) {
      return std::nullopt;
    }
    if (n_bytes == 0) {
      break;
    }
    text.append(part.data(), static_cast<std::size_t>(n_bytes));
  }
  text.erase(text.find_last_not_of(kWhiteSpace) + 1);
  return text;
}

std::optional<std::int64_t> read_number(const std::filesystem::path& path) {
  const std::string text = read_text(path).value_or("");
  return parse_whole(std::string_view(text).substr(0, text.find_first_of(kWhiteSpace)));
}

std::optional<std::string> value_of(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) {
      return std::string(trimmed(std::string_view(line).substr(name.size())));
    }
  }
  return std::nullopt;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string format_bytes(std::uint64_t n_bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  constexpr double kStep = 1024;
  auto value = static_cast<double>(n_bytes);
  std::size_t unit = 0;
  while (value >= kStep && unit + 1 < kUnits.size()) {
    value /= kStep;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::optional<std::int64_t> parse_whole(std::string_view text) {
  std::int64_t number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  const bool is_whole = error == std::errc() && stop == end;
  return is_whole ? std::optional(number) : std::nullopt;
}

}  // namespace unisono::cli::doctor
