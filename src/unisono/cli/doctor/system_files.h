#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::cli::doctor {

// Files under a root, as "/" is one: tests make another.

/// Its bytes, up to a megabyte or so, without white space at the end; nothing if it can't be read.
[[nodiscard]] std::optional<std::string> read_text(const std::filesystem::path& path);

/// The whole number that it begins with; nothing if there is none.
[[nodiscard]] std::optional<std::int64_t> read_number(const std::filesystem::path& path);

/// The rest of the first line of `text` that begins with `name`, without white space around it;
/// nothing if there is none.
[[nodiscard]] std::optional<std::string> value_of(const std::string& text, std::string_view name);

/// The names in a folder, sorted; none if it can't be read.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);

/// "1.5 GiB", "512 KiB", "12 bytes".
[[nodiscard]] std::string format_bytes(std::uint64_t n_bytes);

/// The whole number that `text` is; nothing if it is none.
[[nodiscard]] std::optional<std::int64_t> parse_whole(std::string_view text);

}  // namespace unisono::cli::doctor
