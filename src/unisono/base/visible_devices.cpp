#include "unisono/base/visible_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace unisono {
namespace {

bool is_number(const std::string& text) {
  unsigned number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

// The beginning of a UUID will do, if no other has it.
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
      result.problem = fmt::format("{} is there twice", name);
      break;
    }
    result.names.push_back(name);
  }
  return result;
}

}  // namespace unisono
