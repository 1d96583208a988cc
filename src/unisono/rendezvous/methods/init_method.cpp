#include "unisono/rendezvous/methods/init_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/net/host_port.h"

namespace unisono::rendezvous {
namespace {

constexpr int kMaxPort = 65'535;
constexpr int kMostWorldSize = std::numeric_limits<int>::max();

[[noreturn]] void refuse(const std::string& text, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("init_method \"{}\": {}; it has the form scheme://host:port, as env://, "
                          "tcp://10.0.0.1:29500?rank=0&world_size=4",
                          text,
                          problem));
}

template <class Number>
std::optional<Number> parse_number(const std::string& text, int base = 10) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::string decode(std::string_view text, const std::string& whole) {
  std::string decoded;
  while (!text.empty()) {
    if (text.front() != '%') {
      decoded += text.front();
      text.remove_prefix(1);
      continue;
    }
    const auto byte = parse_number<unsigned>(std::string(text.substr(1, 2)), 16);
    if (!byte || text.size() < 3) {
      refuse(whole, "a % has no two digits behind it");
    }
    decoded += static_cast<char>(*byte);
    text.remove_prefix(3);
  }
  return decoded;
}

// "host", "host:port", "[::1]:port", ":port"
void take_authority(std::string_view authority, InitMethod& method) {
  std::size_t host_end = authority.rfind(':');
  if (authority.starts_with('[')) {
    const std::size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) {
      refuse(method.text, net::describe_host_fault(std::string(authority), ""));
    }
    method.host = authority.substr(1, bracket - 1);
    host_end = bracket + 1;
    if (host_end < authority.size() && authority[host_end] != ':') {
      refuse(method.text, "something stands behind the ] that is no port");
    }
  } else {
    method.host = authority.substr(0, host_end);
    if (method.host.find(':') != std::string::npos) {
      const std::string fault = net::describe_host_fault(std::string(authority), "");
      refuse(method.text,
             fault.empty()
                 ? fmt::format("an IPv6 address stands in brackets: write [{}]", authority)
                 : fault);
    }
  }
  if (host_end >= authority.size()) {
    return;
  }
  const auto port = parse_number<int>(std::string(authority.substr(host_end + 1)));
  if (!port || *port < 1 || *port > kMaxPort) {
    refuse(method.text,
           fmt::format("\"{}\" is no port from 1 to {}", authority.substr(host_end + 1), kMaxPort));
  }
  method.port = static_cast<std::uint16_t>(*port);
}

void take_query(std::string_view query, InitMethod& method) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      refuse(method.text, fmt::format("\"{}\" is no name=value", item));
    }
    const std::string name = decode(item.substr(0, equals), method.text);
    if (!method.query.emplace(name, decode(item.substr(equals + 1), method.text)).second) {
      refuse(method.text, fmt::format("{} is given twice", name));
    }
  }
}

}  // namespace

bool is_scheme(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

InitMethod parse_init_method(const std::string& text) {
  constexpr std::string_view kSeparator = "://";
  InitMethod method;
  method.text = text;
  std::string_view rest = text;
  const std::size_t separator = rest.find(kSeparator);
  if (separator == std::string_view::npos || !is_scheme(rest.substr(0, separator))) {
    refuse(text, "it does not begin with a scheme");
  }
  method.scheme = rest.substr(0, separator);
  rest.remove_prefix(separator + kSeparator.size());
  const std::size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view query = rest.substr(std::min(question + 1, rest.size()));
  rest = rest.substr(0, question);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  take_authority(rest.substr(0, slash), method);
  method.path = decode(rest.substr(slash), text);
  take_query(query, method);
  return method;
}

std::optional<int> InitMethod::number(const std::string& name, int least) const {
  const auto found = query.find(name);
  if (found == query.end()) {
    return std::nullopt;
  }
  const auto value = parse_number<std::int64_t>(found->second);
  if (!value || *value < least || *value > kMostWorldSize) {
    refuse(text,
           fmt::format("{}={} is no whole number of at least {} and at most {}",
                       name,
                       found->second,
                       least,
                       kMostWorldSize));
  }
  return static_cast<int>(*value);
}

}  // namespace unisono::rendezvous
