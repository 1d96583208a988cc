#include "unisono/base/backend_alias.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace unisono {
namespace {

constexpr std::string_view kTarget = "unisono";

// As torch.distributed knows them: it looks for an attribute of that name.
bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::optional<std::string> find_pair_problem(std::string_view pair) {
  const std::size_t equals = pair.find('=');
  if (equals == std::string_view::npos) {
    return fmt::format("\"{}\" lacks what it means; write NAME=unisono, as in gloo=unisono", pair);
  }
  const std::string_view name = pair.substr(0, equals);
  const std::string_view target = pair.substr(equals + 1);
  if (!is_name(name)) {
    return fmt::format(
        "\"{}\": before the = goes a backend's name, of a-z, 0-9 and _, as in gloo=unisono", pair);
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
      return fmt::format("\"{}\" is there twice; once is enough", pair);
    }
    if (comma == std::string_view::npos) {
      return std::nullopt;
    }
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace unisono
