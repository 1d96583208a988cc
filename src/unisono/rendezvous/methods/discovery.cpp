#include "unisono/rendezvous/methods/discovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/methods/builtin_methods.h"

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
      refuse(whole, "a % is not followed by two digits");
    }
    decoded += static_cast<char>(*byte);
    text.remove_prefix(3);
  }
  return decoded;
}

// Parses "host", "host:port", "[::1]:port" or ":port".
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
      refuse(method.text, "the text after the ] is not a port");
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
    refuse(
        method.text,
        fmt::format("\"{}\" is not a port from 1 to {}", authority.substr(host_end + 1), kMaxPort));
  }
  method.port = static_cast<std::uint16_t>(*port);
}

void take_query(std::string_view query, InitMethod& method) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      refuse(method.text, fmt::format("\"{}\" is not name=value", item));
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
           fmt::format("{}={} is not a whole number of at least {} and at most {}",
                       name,
                       found->second,
                       least,
                       kMostWorldSize));
  }
  return static_cast<int>(*value);
}

namespace {

struct Registry {
  Mutex mutex;
  std::map<std::string, Discovery> by_scheme UNISONO_GUARDED_BY(mutex){
      {"env", nullptr}, {"tcp", nullptr}, {"file", discover_by_file}};
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

void register_init_method(const std::string& scheme, Discovery discover) {
  const auto refuse = [&](const char* problem) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("register_init_method: \"{}\" {}", scheme, problem));
  };
  if (!is_scheme(scheme)) {
    refuse("is not a scheme of small letters, digits, +, - and .");
  }
  if (discover == nullptr) {
    refuse("needs a function");
  }
  Registry& state = registry();
  const MutexLock lock(state.mutex);
  if (!state.by_scheme.emplace(scheme, std::move(discover)).second) {
    refuse("is there already");
  }
}

Discovery find_discovery(const InitMethod& method) {
  if (is_multicast(method)) {
    return discover_by_multicast;
  }
  Registry& state = registry();
  std::vector<std::string> schemes;
  const MutexLock lock(state.mutex);
  const auto found = state.by_scheme.find(method.scheme);
  if (found != state.by_scheme.end()) {
    return found->second;
  }
  for (const auto& [scheme, discover] : state.by_scheme) {
    schemes.push_back(scheme + "://");
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("init_method \"{}\": there is no scheme {}; there are {}",
                          method.text,
                          method.scheme,
                          fmt::join(schemes, ", ")));
}

RankRequest read_rank_request(const InitMethod& method,
                              const GivenRank& given,
                              bool needs_rank,
                              std::string problems) {
  const auto complain = [&problems](const std::string& problem) {
    problems += (problems.empty() ? "" : "; ") + problem;
  };
  const std::optional<int> rank =
      given.rank >= 0 ? std::optional(given.rank) : method.number("rank", 0);
  const std::optional<int> world_size =
      given.world_size >= 0 ? std::optional(given.world_size) : method.number("world_size", 1);
  if (given.rank < -1) {
    complain(fmt::format("rank {} is negative", given.rank));
  } else if (!rank && needs_rank) {
    complain("there is no rank");
  }
  if (given.world_size < -1) {
    complain(fmt::format("world_size {} is negative", given.world_size));
  } else if (!world_size) {
    complain("there is no world_size");
  } else if (*world_size == 0) {
    complain("a world_size of 0 is not positive");
  } else if (rank && *rank >= *world_size) {
    complain(fmt::format("rank {} is not below world_size {}", *rank, *world_size));
  }
  for (const auto& [name, value] : method.query) {
    if (name != "rank" && name != "world_size" && (needs_rank || name != "group_name")) {
      complain(fmt::format("there is no option {}", name));
    }
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": {}; give each process {}, in InitOptions or as {}",
                            method.text,
                            problems,
                            needs_rank ? "its rank and the world size" : "the world size",
                            needs_rank ? "tcp://10.0.0.1:29500?rank=0&world_size=4"
                                       : "?world_size=4 behind the method"));
  }
  const auto name = method.query.find("group_name");
  return {.rank = rank,
          .world_size = world_size.value_or(1),
          .group_name = name == method.query.end() ? "" : name->second};
}

}  // namespace unisono::rendezvous
