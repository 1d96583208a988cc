#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace unisono::checkpoint {

/// Returns all bytes of a file. Throws the errors of RegularFile, and kCorruptData if the file has
/// more than `most` bytes.
[[nodiscard]] std::string read_text(const std::string& path, std::uint64_t most);

/// Parses `text` as a JSON object. Throws Error(kCorruptData) with a message that begins with
/// `where` for invalid JSON, a duplicate key, more than 16 levels of nesting, and values other than
/// an object.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, const std::string& where);

/// Returns the value as JSON text in one line. Throws Error(kInvalidArgument) with a message that
/// begins with `where` if a string is not UTF-8.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value, const std::string& where);
[[nodiscard]] std::string dump_json(const nlohmann::json& value, const std::string& where);

/// Returns the value as an integer from 0 to `most`. For other values throws Error(kCorruptData)
/// with the message "`where`: `what` ...".
[[nodiscard]] std::int64_t whole_number(const nlohmann::json& value,
                                        std::int64_t most,
                                        const std::string& where,
                                        std::string_view what);

}  // namespace unisono::checkpoint
