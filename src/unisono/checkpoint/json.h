#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace unisono::checkpoint {

/// All bytes of a file. Throws Error as RegularFile does, and kCorruptData for more than `most`
/// bytes.
[[nodiscard]] std::string read_text(const std::string& path, std::uint64_t most);

/// The object that `text` is. Throws Error(kCorruptData), which begins with `where`, for what is no
/// JSON, for a key that an object has twice, for more than 16 levels of nesting, and for anything
/// but an object.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, const std::string& where);

/// The value's text in one line. Throws Error(kInvalidArgument), which begins with `where`, for a
/// string that is not UTF-8.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value, const std::string& where);
[[nodiscard]] std::string dump_json(const nlohmann::json& value, const std::string& where);

/// The value as a whole number from 0 to `most`. Throws Error(kCorruptData) as "`where`: `what`
/// ...".
[[nodiscard]] std::int64_t whole_number(const nlohmann::json& value,
                                        std::int64_t most,
                                        const std::string& where,
                                        std::string_view what);

}  // namespace unisono::checkpoint
