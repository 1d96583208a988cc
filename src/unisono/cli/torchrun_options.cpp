#include "unisono/cli/torchrun_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/run.h"

namespace unisono::cli {
namespace {

constexpr std::array kIgnoredWithValue{"monitor-interval",
                                       "start-method",
                                       "event-log-handler",
                                       "duplicate-stdout-filters",
                                       "duplicate-stderr-filters",
                                       "local-addr",
                                       "logs-specs",
                                       "signals-to-handle"};
constexpr int kMaxSeconds = 1'000'000;

std::string underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// "--rdzv-id,--rdzv_id"
std::string both(const std::string& name) {
  return fmt::format("--{},--{}", name, underscored(name));
}

// Names the option whose value an error is about.
void explain(const char* name, const std::string& value, const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("run: --{} {}: {}", name, value, error.what()));
  }
}

// What --bind-to says comes first.
void apply_numa_binding(const std::string& name, launch::RunOptions& options) {
  const std::map<std::string, launch::BindTo> meanings{{"node", launch::BindTo::kNuma},
                                                       {"socket", launch::BindTo::kSocket},
                                                       {"exclusive", launch::BindTo::kCore}};
  const auto meaning = meanings.find(name);
  if (meaning != meanings.end() && !options.bind_to) {
    options.bind_to = meaning->second;
  } else if (!name.empty() && meaning == meanings.end()) {
    options.ignored_options.push_back(fmt::format("--numa-binding {}", name));
  }
}

}  // namespace

void add_torchrun_options(CLI::App& app,
                          TorchrunArguments& arguments,
                          launch::RunOptions& options) {
  app.add_option(both("rdzv-id"), options.run_id, "Name of the job (default: a random one)");
  app.add_option("--role", options.role, "ROLE_NAME of the ranks (default \"default\")");
  constexpr const char* kStreams = "0|1|2|3|RANK:STREAMS,...";
  app.add_option("-r,--redirects",
                 arguments.redirects,
                 "What goes into the files of --log-dir only: 1 stdout, 2 stderr, 3 both; 0:3,1:2 "
                 "for some local ranks")
      ->type_name(kStreams);
  app.add_option("-t,--tee", arguments.tee, "What goes there, too; as --redirects")
      ->type_name(kStreams);
  app.add_option(both("local-ranks-filter"),
                 arguments.shown_ranks,
                 "Local ranks whose output is shown: 0,3 (default: all)");
  app.add_option(both("log-line-prefix-template"),
                 options.prefix_template,
                 "What --prefix writes, as [${role_name}${local_rank}|${rank}]: ")
      ->type_name("TEMPLATE");
  app.add_option(both("numa-binding"),
                 arguments.numa_binding,
                 "--bind-to in torchrun's words: node is numa, exclusive is core")
      ->check(CLI::IsMember({"node", "socket", "exclusive", "core-complex"}))
      ->type_name("node|socket|exclusive|core-complex");
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
  explain("redirects", arguments.redirects, [&] {
    options.redirects = launch::parse_streams(arguments.redirects, options.n_workers);
  });
  explain("tee", arguments.tee, [&] {
    options.tee = launch::parse_streams(arguments.tee, options.n_workers);
  });
  explain("local-ranks-filter", arguments.shown_ranks, [&] {
    options.shown_ranks = launch::parse_local_ranks(arguments.shown_ranks, options.n_workers);
  });
  options.prefix = options.prefix || !options.prefix_template.empty();
  options.ignored_options = arguments.ignored;
  apply_numa_binding(arguments.numa_binding, options);
}

void read_defaults_from_environment(CLI::App& app) {
  constexpr std::array kNotTorchruns{"help",
                                     "prefix",
                                     "grace",
                                     "stall-timeout",
                                     "spares",
                                     "collapse",
                                     "log-format",
                                     "hosts",
                                     "hostfile",
                                     "rsh",
                                     "export",
                                     "verbose",
                                     "allow-plain-clients",
                                     "backend-alias",
                                     "bind-to",
                                     "report-bindings"};
  for (CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (names.empty() || std::ranges::find(kNotTorchruns, names.front()) != kNotTorchruns.end()) {
      continue;
    }
    std::string variable = "PET_" + underscored(names.front());
    std::ranges::transform(variable, variable.begin(), [](unsigned char letter) {
      return static_cast<char>(std::toupper(letter));
    });
    option->envname(variable);
  }
  app.get_option("--log-line-prefix-template")->envname("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  app.get_option("--signals-to-handle")->envname("TORCHELASTIC_SIGNALS_TO_HANDLE");
}

}  // namespace unisono::cli
