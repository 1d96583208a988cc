#include "unisono/rendezvous/launchers/variable_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/net/host_port.h"
#include "unisono/rendezvous/launchers/nodelist.h"

namespace unisono::rendezvous {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

std::optional<int> as_int(std::optional<std::int64_t> number) {
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

void add_new(const std::string& text, std::vector<std::string>& texts) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
    texts.push_back(text);
  }
}

}  // namespace

std::string VariableReader::text(const char* name) {
  const std::optional<std::string> value = environment_(name);
  if (value) {
    add_new(name, found_);
  } else {
    complain(fmt::format("{} is not set", name));
  }
  return value.value_or("");
}

std::string VariableReader::host(const char* name, const char* port_name) {
  try {
    const std::optional<std::string> value = environment_(name);
    if (value) {
      net::check_host(fmt::format("{}=\"{}\"", name, *value), *value, port_name);
    }
    return text(name);
  } catch (const Error& error) {
    complain(error.what());
    return "";
  }
}

std::vector<std::string> VariableReader::nodes(const char* name) {
  const std::optional<std::string> value = environment_(name);
  if (!value) {
    complain(fmt::format("{} is not set", name));
    return {};
  }
  try {
    std::vector<std::string> names = expand_nodelist(*value);
    add_new(name, found_);
    return names;
  } catch (const Error& error) {
    complain(fmt::format("{}: {}", name, error.what()));
    return {};
  }
}

std::optional<std::int64_t> VariableReader::number(const char* name,
                                                   std::int64_t least,
                                                   std::int64_t most,
                                                   bool is_needed) {
  const std::optional<std::string> value = environment_(name);
  if (!value) {
    if (is_needed) {
      complain(fmt::format("{} is not set", name));
    }
    return std::nullopt;
  }
  std::int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end || number < least || number > most) {
    complain(fmt::format(
        "{}=\"{}\" is no whole number of at least {} and at most {}", name, *value, least, most));
    return std::nullopt;
  }
  add_new(name, found_);
  return number;
}

std::optional<int> VariableReader::needed_int(const char* name, int least) {
  return as_int(number(name, least, kMaxInt, true));
}

std::optional<int> VariableReader::optional_int(const char* name, int least) {
  return as_int(number(name, least, kMaxInt, false));
}

std::optional<std::uint16_t> VariableReader::port(const char* name) {
  constexpr std::int64_t kMaxPort = 65'535;
  const std::optional<std::int64_t> value = number(name, 1, kMaxPort, false);
  return value ? std::optional(static_cast<std::uint16_t>(*value)) : std::nullopt;
}

void VariableReader::complain(const std::string& problem) {
  add_new(problem, problems_);
}

std::string VariableReader::problems() const {
  return fmt::format("{}", fmt::join(problems_, "; "));
}

std::string VariableReader::found() const {
  return fmt::format("{}", fmt::join(found_, ", "));
}

}  // namespace unisono::rendezvous
