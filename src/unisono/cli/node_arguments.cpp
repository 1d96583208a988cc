#include "unisono/cli/node_arguments.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::cli {
namespace {

constexpr int kMaxNodes = 100'000;
// Default of torchrun for an endpoint without a port.
constexpr std::uint16_t kDefaultEndpointPort = 29400;

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<T>(value)
                                                                  : std::nullopt;
}

[[noreturn]] void refuse_nodes(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "run: " + problem);
}

struct Endpoint {
  std::string host;
  std::optional<std::uint16_t> port;
};

// Parses "alpha", "alpha:29400", "[::1]:29400".
Endpoint parse_endpoint(const std::string& text) {
  Endpoint endpoint{.host = text, .port = {}};
  const std::size_t colon = text.rfind(':');
  const bool is_behind_host =
      text.starts_with('[') ? colon == text.find(']') + 1 : colon == text.find(':');
  if (colon != std::string::npos && is_behind_host && text.find("://") == std::string::npos) {
    const std::string digits = text.substr(colon + 1);
    endpoint.port = parse_number<std::uint16_t>(digits);
    if (!endpoint.port) {
      refuse_nodes(fmt::format("--rdzv-endpoint {}: {} is not a port", text, digits));
    }
    endpoint.host = text.substr(0, colon);
  }
  net::check_host(fmt::format("run: --rdzv-endpoint {}", text), endpoint.host, "");
  if (endpoint.host.starts_with('[')) {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  return endpoint;
}

std::optional<std::chrono::milliseconds> parse_seconds(const std::string& text) {
  constexpr double kMaxSeconds = 1e9;
  const std::optional<double> seconds = parse_number<double>(text);
  if (!seconds || !(*seconds > 0) || *seconds > kMaxSeconds) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(std::llround(*seconds * 1000));
}

bool set_seconds(const std::string& text, std::chrono::milliseconds& value) {
  const auto parsed = parse_seconds(text);
  value = parsed.value_or(value);
  return parsed.has_value();
}

// A key of --rdzv-conf. parse() returns false for an invalid value.
struct Setting {
  const char* name;
  bool (*parse)(const std::string& text, launch::NodesOptions& nodes);
};

constexpr std::array kSettings{
    Setting{"join_timeout",
            [](const std::string& text, launch::NodesOptions& nodes) {
              return set_seconds(text, nodes.join_timeout);
            }},
    Setting{"timeout",
            [](const std::string& text, launch::NodesOptions& nodes) {
              return set_seconds(text, nodes.join_timeout);
            }},
    Setting{"last_call_timeout",
            [](const std::string& text, launch::NodesOptions& nodes) {
              return set_seconds(text, nodes.last_call);
            }},
    Setting{"keep_alive_interval",
            [](const std::string& text, launch::NodesOptions& nodes) {
              return set_seconds(text, nodes.keep_alive_interval);
            }},
    Setting{"keep_alive_max_attempt",
            [](const std::string& text, launch::NodesOptions& nodes) {
              nodes.max_keep_alives = parse_number<int>(text).value_or(0);
              return nodes.max_keep_alives > 0;
            }},
    Setting{"is_host", [](const std::string& text, launch::NodesOptions& nodes) {
              const bool is_true = text == "1" || text == "true" || text == "True";
              const bool is_false = text == "0" || text == "false" || text == "False";
              nodes.is_coordinator = is_true;
              return is_true || is_false;
            }}};

void read_setting(const std::string& name,
                  const std::string& value,
                  launch::NodesOptions& nodes,
                  std::vector<std::string>& ignored) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name) {
      if (!setting.parse(value, nodes)) {
        refuse_nodes(fmt::format("--rdzv-conf {}={}: this is not a valid value", name, value));
      }
      return;
    }
  }
  ignored.push_back(fmt::format("--rdzv-conf {}", name));
}

// Removes the surrounding blanks and quotes that configuration files leave.
std::string_view strip(std::string_view text) {
  constexpr std::string_view kStripped = " \t\r\n'\"";
  text.remove_prefix(std::min(text.find_first_not_of(kStripped), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(kStripped) + 1));
  return text;
}

// Parses "join_timeout=60,is_host=true".
void read_settings(std::string_view text,
                   launch::NodesOptions& nodes,
                   std::vector<std::string>& ignored) {
  text = strip(text);
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view pair = text.substr(begin, end - begin);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      refuse_nodes(fmt::format("--rdzv-conf {}: write name=value,name=value", text));
    }
    read_setting(std::string(strip(pair.substr(0, equals))),
                 std::string(strip(pair.substr(equals + 1))),
                 nodes,
                 ignored);
    begin = end + 1;
  }
}

launch::NodesOptions read_nodes(const NodeArguments& arguments,
                                const NodeCount& count,
                                const launch::RunOptions& options,
                                std::vector<std::string>& ignored) {
  // torchrun's c10d assigns the ranks, whatever --node-rank is.
  const bool are_ranks_given = arguments.node_rank.has_value() && arguments.backend != "c10d";
  if (are_ranks_given && (*arguments.node_rank < 0 || *arguments.node_rank >= count.max)) {
    refuse_nodes(fmt::format("--node-rank {}: with --nnodes {} there are 0 to {}",
                             *arguments.node_rank,
                             arguments.n_nodes,
                             count.max - 1));
  }
  if (are_ranks_given && count.min != count.max) {
    refuse_nodes(
        fmt::format("--nnodes {} and --node-rank exclude each other: where the number of nodes "
                    "changes, their ranks are assigned",
                    arguments.n_nodes));
  }
  launch::NodesOptions nodes{
      .min_nodes = count.min,
      .max_nodes = count.max,
      .node_rank = are_ranks_given ? *arguments.node_rank : -1,
      .max_spares = arguments.max_spares,
      .host = options.master_addr.empty() ? net::loopback_host() : options.master_addr,
      .port = options.master_port == 0 ? rendezvous::kDefaultMasterPort : options.master_port};
  read_settings(arguments.settings, nodes, ignored);
  return nodes;
}

}  // namespace

void add_node_options(CLI::App& app, NodeArguments& arguments) {
  app.add_option(
      "--nnodes",
      arguments.n_nodes,
      "Number of machines, each with a `unisono run` of its own; or MIN:MAX (default 1)");
  app.add_option("--node-rank,--node_rank",
                 arguments.node_rank,
                 "Number of this machine, 0 being the one where all meet (default: assigned)");
  app.add_flag("--standalone",
               arguments.is_standalone,
               "One machine, whatever a launcher sets; --rdzv-endpoint has no effect then");
  app.add_option("--rdzv-backend,--rdzv_backend",
                 arguments.backend,
                 "static: --node-rank counts; c10d: ranks are assigned")
      ->type_name("static|c10d");
  app.add_option("--rdzv-endpoint,--rdzv_endpoint",
                 arguments.endpoint,
                 "HOST[:PORT] in place of --master-addr and --master-port");
  app.add_option("--rdzv-conf,--rdzv_conf",
                 arguments.settings,
                 "join_timeout=600,last_call_timeout=30,keep_alive_interval=5,"
                 "keep_alive_max_attempt=3,is_host=true");
  app.add_option("--spares",
                 arguments.max_spares,
                 "Number of machines beyond MAX that may wait for a place (default: all)")
      ->check(CLI::Range(0, kMaxNodes));
}

void apply(const NodeArguments& arguments,
           launch::RunOptions& options,
           std::vector<std::string>& ignored) {
  const std::optional<NodeCount> count = parse_node_count(arguments.n_nodes);
  if (!count) {
    refuse_nodes(fmt::format("--nnodes {}: write a number, or MIN:MAX", arguments.n_nodes));
  }
  const std::string& backend = arguments.backend;
  if (!backend.empty() && backend != "static" && backend != "c10d") {
    refuse_nodes(fmt::format("--rdzv-backend {}: there are static and c10d", backend));
  }
  const bool is_one_node = count->max == 1;
  if (arguments.is_standalone && !is_one_node) {
    refuse_nodes(fmt::format("--standalone and --nnodes {} exclude each other", arguments.n_nodes));
  }
  if (is_one_node && arguments.node_rank.value_or(0) != 0) {
    refuse_nodes(
        fmt::format("--node-rank {}: with --nnodes 1 there is 0 only; all nodes get the same "
                    "--nnodes",
                    *arguments.node_rank));
  }
  if (!options.master_addr.empty()) {
    net::check_host(fmt::format("run: --master-addr {}", options.master_addr),
                    options.master_addr,
                    "--master-port");
  }
  if (!arguments.endpoint.empty() && !arguments.is_standalone) {
    const Endpoint endpoint = parse_endpoint(arguments.endpoint);
    options.master_addr = endpoint.host;
    options.master_port = endpoint.port.value_or(is_one_node ? 0 : kDefaultEndpointPort);
  }
  if (!is_one_node) {
    options.nodes = read_nodes(arguments, *count, options, ignored);
  } else if (!arguments.settings.empty()) {
    ignored.emplace_back("--rdzv-conf");
  }
}

std::optional<NodeCount> parse_node_count(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::optional<int> min = parse_number<int>(text.substr(0, colon));
  const std::optional<int> max =
      colon == std::string::npos ? min : parse_number<int>(text.substr(colon + 1));
  if (!min || !max || *min < 1 || *max < *min || *max > kMaxNodes) {
    return std::nullopt;
  }
  return NodeCount{*min, *max};
}

}  // namespace unisono::cli
