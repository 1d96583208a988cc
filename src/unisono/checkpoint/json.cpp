#include "unisono/checkpoint/json.h"

#include <fmt/format.h>

#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"

namespace unisono::checkpoint {
namespace {

using nlohmann::json;

// Our files have fewer levels. The limit protects code that processes nested values recursively.
constexpr int kMostDepth = 16;

template <class Json>
std::string dump(const Json& value, const std::string& where) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    throw Error(ErrorCode::kInvalidArgument,
                where + ": a name is not valid UTF-8, which the file's format needs");
  }
}

}  // namespace

std::string read_text(const std::string& path, std::uint64_t most) {
  const RegularFile file(path);
  if (file.n_bytes() > most) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format(
            "{}: has {} bytes, more than the {} that it may have", path, file.n_bytes(), most));
  }
  std::string text(static_cast<std::size_t>(file.n_bytes()), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

json parse_json_object(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  std::string doubled;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth >= kMostDepth &&
        (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: is nested deeper than {} levels", where, kMostDepth));
    }
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && doubled.empty()) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        doubled = key;
      }
    }
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text, watch);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: is not JSON: {}", where, error.what()));
  }
  if (!doubled.empty()) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: has \"{}\" twice", where, doubled));
  }
  if (!parsed.is_object()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is a JSON {}, not an object", where, parsed.type_name()));
  }
  return parsed;
}

std::string dump_json(const nlohmann::ordered_json& value, const std::string& where) {
  return dump(value, where);
}

std::string dump_json(const json& value, const std::string& where) {
  return dump(value, where);
}

std::int64_t whole_number(const json& value,
                          std::int64_t most,
                          const std::string& where,
                          std::string_view what) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: {} must be a whole number from 0 to {}, but is {}",
                            where,
                            what,
                            most,
                            value.is_number() ? value.dump() : value.type_name()));
  }
  return value.get<std::int64_t>();
}

}  // namespace unisono::checkpoint
