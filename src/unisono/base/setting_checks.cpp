#include "unisono/base/setting_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <set>
#include <sstream>
#include <system_error>

#include "unisono/base/config.h"
#include "unisono/base/text.h"

namespace unisono {

std::string similar_setting(std::string_view name) {
  std::size_t least = 4;
  std::string similar;
  for (const ConfigRow& row : config_table()) {
    const std::size_t distance = edit_distance(name, row.name);
    if (distance == 0) {
      return "";
    }
    if (distance < least) {
      least = distance;
      similar = row.name;
    }
  }
  return similar;
}

namespace {

constexpr std::string_view kTarget = "unisono";

// Returns true if the text is a backend name: torch.distributed finds a backend as an attribute of
// that name.
bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::optional<std::string> find_pair_problem(std::string_view pair) {
  const std::size_t equals = pair.find('=');
  if (equals == std::string_view::npos) {
    return fmt::format("\"{}\" has no value; write NAME=unisono, as in gloo=unisono", pair);
  }
  const std::string_view name = pair.substr(0, equals);
  const std::string_view target = pair.substr(equals + 1);
  if (!is_name(name)) {
    return fmt::format(
        "\"{}\": the name before the = must consist of a-z, 0-9 and _, as in gloo=unisono", pair);
  }
  if (target != kTarget) {
    return fmt::format("\"{}\": a name can only mean unisono; write {}=unisono", pair, name);
  }
  if (name == kTarget) {
    return "unisono means Unisono already; leave it out";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_alias_problem(std::string_view text) {
  std::set<std::string_view> pairs;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view pair = rest.substr(0, comma);
    if (std::optional<std::string> problem = find_pair_problem(pair)) {
      return problem;
    }
    if (!pairs.insert(pair).second) {
      return fmt::format("\"{}\" occurs twice; once is enough", pair);
    }
    if (comma == std::string_view::npos) {
      return std::nullopt;
    }
    rest.remove_prefix(comma + 1);
  }
}

namespace {

bool is_number(const std::string& text) {
  unsigned number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

// A prefix of a UUID suffices if it is unique.
bool is_uuid(const std::string& text) {
  const auto has_prefix = [&](const char* prefix) {
    return text.starts_with(prefix) && text.size() > std::string(prefix).size();
  };
  return has_prefix("GPU-") || has_prefix("MIG-");
}

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

VisibleDevices parse_visible_devices(const std::string& text) {
  VisibleDevices result;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::string name = trimmed(part);
    if (name == "-1") {
      break;
    }
    if (!is_number(name) && !is_uuid(name)) {
      result.problem = fmt::format("\"{}\" is neither a GPU's number nor GPU-UUID", part);
      break;
    }
    if (std::ranges::find(result.names, name) != result.names.end()) {
      result.problem = fmt::format("{} occurs twice", name);
      break;
    }
    result.names.push_back(name);
  }
  return result;
}

}  // namespace unisono
