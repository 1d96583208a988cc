#include "unisono/cli/bench_parse.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "unisono/base/error.h"

namespace unisono::cli::bench {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 ||
      number > kMaxBytes) {
    return std::nullopt;
  }
  return number;
}

// Parses "8", "1K", "3M".
std::optional<std::int64_t> parse_bytes(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    const std::size_t unit = std::string_view("KMG").find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const std::optional<std::int64_t> number = parse_number(text);
  if (!number || *number > kMaxBytes >> shift) {
    return std::nullopt;
  }
  return *number << shift;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

Error invalid_size(std::string_view item, std::string_view problem) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("bench: \"{}\" in --sizes {}; write 8,1K,3M, or 8:64M:x2 for powers of 2 (K, "
                      "M, G: powers of 1024; at most 1024G)",
                      item,
                      problem)};
}

// Returns the sizes of "FIRST:LAST" or "FIRST:LAST:xFACTOR".
std::vector<std::int64_t> parse_range(std::string_view item,
                                      std::span<const std::string_view> parts) {
  const std::optional<std::int64_t> first = parse_bytes(parts[0]);
  const std::optional<std::int64_t> last = parse_bytes(parts[1]);
  std::optional<std::int64_t> factor = 2;
  if (parts.size() == 3) {
    factor = parts[2].starts_with('x') ? parse_number(parts[2].substr(1)) : std::nullopt;
  }
  if (!first || !last || !factor || parts.size() > 3) {
    throw invalid_size(item, "is not a range of numbers of bytes");
  }
  if (*first < 1) {
    throw invalid_size(item, "begins at 0, which has no powers");
  }
  if (*last < *first) {
    throw invalid_size(item, "ends below its beginning");
  }
  if (*factor < 2) {
    throw invalid_size(item,
                       fmt::format("grows by the factor {}, which must be at least 2", *factor));
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = *first; size <= *last; size *= *factor) {
    sizes.push_back(size);
    if (size > kMaxBytes / *factor) {
      break;
    }
  }
  return sizes;
}

// Returns the sizes of one item of the list.
std::vector<std::int64_t> parse_item(std::string_view item) {
  const std::vector<std::string_view> parts = split(item, ':');
  if (parts.size() > 1) {
    return parse_range(item, parts);
  }
  const std::optional<std::int64_t> size = parse_bytes(item);
  if (!size) {
    throw invalid_size(item, "is not a number of bytes");
  }
  return {*size};
}

// Returns the value with the name `text`.
template <class T>
T parse_name(const char* what, const std::string& text, std::span<const T> values) {
  std::vector<std::string> names;
  for (const T value : values) {
    if (text == to_string(value)) {
      return value;
    }
    names.emplace_back(to_string(value));
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "bench: there is no {} \"{}\"; there are {}", what, text, fmt::join(names, ", ")));
}

}  // namespace

const char* to_string(Memory memory) noexcept {
  return memory == Memory::kPrivate ? "private" : "symmetric";
}

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (const std::string_view item : split(text, ',')) {
    const std::vector<std::int64_t> parsed = parse_item(item);
    sizes.insert(sizes.end(), parsed.begin(), parsed.end());
  }
  return sizes;
}

DType parse_dtype(const std::string& text) {
  std::vector<DType> dtypes;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    dtypes.push_back(static_cast<DType>(dtype));
  }
  return parse_name<DType>("dtype", text, dtypes);
}

Memory parse_memory(const std::string& text) {
  return parse_name<Memory>("memory", text, kMemories);
}

Algorithm parse_algorithm(const std::string& text) {
  return parse_name<Algorithm>("algorithm", text, kAlgorithms);
}

}  // namespace unisono::cli::bench
