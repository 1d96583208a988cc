#include "unisono/cli/torchrun_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/run.h"

namespace unisono::cli {
namespace {

constexpr std::array kIgnoredWithValue{"monitor-interval",
                                       "rdzv-conf",
                                       "start-method",
                                       "event-log-handler",
                                       "duplicate-stdout-filters",
                                       "duplicate-stderr-filters",
                                       "local-addr",
                                       "logs-specs",
                                       "numa-binding",
                                       "signals-to-handle"};
constexpr int kMaxSeconds = 1'000'000;
constexpr const char* kSeveralNodes =
    "this starts the ranks of one machine; srun and mpirun start those of several "
    "(docs/guide/clusters.md)";

std::string underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// "--rdzv-id,--rdzv_id"
std::string both(const std::string& name) {
  return fmt::format("--{},--{}", name, underscored(name));
}

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

// "alpha", "alpha:29400", "[::1]:29400".
Endpoint parse_endpoint(const std::string& text) {
  Endpoint endpoint{.host = text};
  const std::size_t colon = text.rfind(':');
  const bool is_bare_ipv6 = text.find(':') != colon && !text.starts_with('[');
  if (colon != std::string::npos && !is_bare_ipv6 && !text.ends_with(']')) {
    const std::string_view digits = std::string_view(text).substr(colon + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("run: --rdzv-endpoint {}: {} is no port", text, digits));
    }
    endpoint.host = text.substr(0, colon);
  }
  if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']')) {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  return endpoint;
}

// Names the option whose value an error is about.
void explain(const char* name, const std::string& value, const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("run: --{} {}: {}", name, value, error.what()));
  }
}

}  // namespace

void add_torchrun_options(CLI::App& app,
                          TorchrunArguments& arguments,
                          launch::RunOptions& options) {
  app.add_option("--nnodes", arguments.n_nodes, "Number of machines: 1");
  app.add_option(both("node-rank"), arguments.node_rank, "Number of this machine: 0");
  app.add_flag("--standalone",
               arguments.standalone,
               "One machine, as always; --rdzv-endpoint says nothing then");
  app.add_option(both("rdzv-backend"),
                 arguments.rendezvous_backend,
                 "static or c10d, which are the same on one machine");
  app.add_option(both("rdzv-endpoint"),
                 arguments.rendezvous_endpoint,
                 "HOST[:PORT] in place of --master-addr and --master-port");
  app.add_option(both("rdzv-id"), options.run_id, "Name of the job (default: a random one)");
  app.add_option("--role", options.role, "ROLE_NAME of the ranks (default \"default\")");
  app.add_option("-r,--redirects",
                 arguments.redirects,
                 "What goes into the files of --log-dir only: 1 stdout, 2 stderr, 3 both; 0:3,1:2 "
                 "for some local ranks");
  app.add_option("-t,--tee", arguments.tee, "What goes there, too; as --redirects");
  app.add_option(both("local-ranks-filter"),
                 arguments.shown_ranks,
                 "Local ranks whose output is shown: 0,3 (default: all)");
  app.add_option_function<int>(
         both("shutdown-timeout"),
         [&options](int seconds) { options.grace = std::chrono::seconds(seconds); },
         "--grace under torchrun's name")
      ->check(CLI::Range(0, kMaxSeconds));
  for (const char* name : kIgnoredWithValue) {
    app.add_option_function<std::string>(both(name),
                                         [&arguments, name](const std::string& /*value*/) {
                                           arguments.ignored.push_back(fmt::format("--{}", name));
                                         })
        ->group("");
  }
  app.add_flag_callback(both("virtual-local-rank"),
                        [&arguments] { arguments.ignored.emplace_back("--virtual-local-rank"); })
      ->group("");
}

void apply(const TorchrunArguments& arguments, launch::RunOptions& options) {
  if (arguments.n_nodes != "1" && arguments.n_nodes != "1:1") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("run: --nnodes {}: {}", arguments.n_nodes, kSeveralNodes));
  }
  if (arguments.node_rank != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("run: --node-rank {}: {}", arguments.node_rank, kSeveralNodes));
  }
  const std::string& backend = arguments.rendezvous_backend;
  if (backend != "static" && backend != "c10d") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("run: --rdzv-backend {}: there are static and c10d", backend));
  }
  if (!arguments.rendezvous_endpoint.empty() && !arguments.standalone) {
    const Endpoint endpoint = parse_endpoint(arguments.rendezvous_endpoint);
    options.master_addr = endpoint.host;
    options.master_port = endpoint.port;
  }
  explain("redirects", arguments.redirects, [&] {
    options.redirects = launch::parse_streams(arguments.redirects, options.n_workers);
  });
  explain("tee", arguments.tee, [&] {
    options.tee = launch::parse_streams(arguments.tee, options.n_workers);
  });
  explain("local-ranks-filter", arguments.shown_ranks, [&] {
    options.shown_ranks = launch::parse_local_ranks(arguments.shown_ranks, options.n_workers);
  });
  options.ignored_options = arguments.ignored;
}

}  // namespace unisono::cli
