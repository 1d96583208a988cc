#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/node_arguments.h"
#include "unisono/cli/parse.h"
#include "unisono/cli/run_arguments.h"
#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"
#include "unisono/rendezvous/launchers/variables.h"

namespace unisono::cli {
namespace {

// Arguments of the command line.
struct RunArguments {
  std::string n_workers = "1";
  NodeArguments nodes;
  HostArguments hosts;
  TorchrunArguments torchrun;
  launch::RunOptions options;
  bool uses_environment_only = false;
};

// Command line of torchrun, or of its predecessor torch.distributed.launch.
enum class Manner { kRun, kLaunch };

// Returns the words after the options. A first "--" only ends the options.
std::vector<std::string> program_argv(const CLI::App& app) {
  std::vector<std::string> argv = app.remaining();
  const bool options_ended = !argv.empty() && argv.front() == "--";
  if (options_ended) {
    argv.erase(argv.begin());
  }
  if (argv.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "run: no program was given; write: unisono run -n 2 ./program arguments...");
  }
  if (!options_ended && argv.front().starts_with('-')) {
    throw Error(ErrorCode::kInvalidArgument,
                "run: there is no option " + argv.front() +
                    suggestion(argv.front(), option_names(app)) +
                    " (options of the program go behind its name); see unisono run --help");
  }
  if (starts_with_typographic_dash(argv.front())) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "run: " + argv.front() +
            " begins with a dash that is not a hyphen, as inserted by text programs: type -, "
            "or -- before a long option");
  }
  return argv;
}

// Returns the value of -n if it is a list in the form of SLURM_TASKS_PER_NODE, "4(x2),3".
std::optional<std::vector<int>> counts_of_hosts(const RunArguments& arguments) {
  const std::string& text = arguments.n_workers;
  const bool is_list = text.find_first_of("(,") != std::string::npos;
  return is_list ? rendezvous::expand_counts(text) : std::nullopt;
}

// Completes the options from the arguments. The front launcher (`is_in_front`) also starts the
// launchers on the hosts.
void finish_options(const CLI::App& app, bool is_in_front, RunArguments& arguments) {
  launch::RunOptions& options = arguments.options;
  options.program.argv = program_argv(app);
  // Each host counts its own GPUs and then checks the options about its ranks.
  const bool is_list = counts_of_hosts(arguments).has_value();
  if (is_list && !is_in_front) {
    throw Error(ErrorCode::kInvalidArgument,
                "run: -n " + arguments.n_workers +
                    " has the ranks of several hosts, and goes with --hosts; for this machine "
                    "alone write -n 4");
  }
  const bool counts_elsewhere = is_in_front && (is_list || arguments.n_workers == "gpu");
  options.n_workers =
      counts_elsewhere ? launch::kMaxWorkers : launch::parse_worker_count(arguments.n_workers);
  apply(arguments.torchrun, options);
  apply(arguments.nodes, options, options.ignored_options);
  options.is_one_node = app.count("--nnodes") + app.count("--standalone") > 0;
  const int n_kinds = static_cast<int>(options.program.is_module) +
                      static_cast<int>(options.program.no_python) +
                      static_cast<int>(options.program.is_python_file);
  if (n_kinds > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "run: --module, --no-python and --run-path exclude each other");
  }
}

// Returns the words before the program.
std::vector<std::string> typed_options(const CLI::App& app, const CommandLine& line) {
  const auto options = std::span(line.argv, static_cast<std::size_t>(line.argc))
                           .first(static_cast<std::size_t>(line.argc) - app.remaining_size());
  return {options.begin(), options.end()};
}

int run(const CLI::App& app,
        RunArguments& arguments,
        const CommandLine& line,
        launch::hosts::Uplink* uplink) {
  const bool is_in_front = uplink == nullptr && arguments.hosts.are_given();
  finish_options(app, is_in_front, arguments);
  if (uplink != nullptr) {
    return launch::run(arguments.options, *uplink);
  }
  if (is_in_front) {
    return launch::hosts::run_on_hosts(make_request(app,
                                                    arguments.hosts,
                                                    arguments.options,
                                                    counts_of_hosts(arguments),
                                                    typed_options(app, line)));
  }
  return launch::run(arguments.options);
}

void add_examples_for(Manner manner, CLI::App& app) {
  if (manner == Manner::kLaunch) {
    add_examples(app, {"unisono launch -n 4 train.py", "unisono launch -n 4 --use-env train.py"});
    return;
  }
  add_examples(app,
               {"unisono run -n 4 train.py --epochs 10",
                "unisono run -n 4 --prefix --log-dir logs ./train",
                "unisono run --nnodes 2 --rdzv-endpoint node0:29500 -n 8 ./train"});
}

void add_program_options(CLI::App& app, RunArguments& arguments) {
  launch::RunOptions& options = arguments.options;
  app.add_option(
         "-n,--nproc-per-node,--nproc_per_node",
         arguments.n_workers,
         "Number of ranks; \"auto\" or \"cpu\": one per core; \"gpu\": one per GPU (default 1)")
      ->type_name("N|auto|cpu|gpu");
  app.add_flag("-m,--module", options.program.is_module, "PROGRAM is a Python module");
  app.add_flag("--no-python,--no_python",
               options.program.no_python,
               "Execute a .py file itself instead of `python3 -u`");
  app.add_flag("--run-path,--run_path",
               options.program.is_python_file,
               "PROGRAM is a Python file, whatever its name");
}

void add_job_options(CLI::App& app, launch::RunOptions& options) {
  constexpr double kMaxGraceSeconds = 1e6;
  constexpr double kMaxStallSeconds = 1e6;
  constexpr int kMaxPort = 65535;
  constexpr int kMaxRestarts = 1'000'000'000;
  app.add_flag("--prefix,--prefix-output,--prefix_output",
               options.prefix,
               "Write \"[rank 3] \" before each line of output");
  app.add_flag(
      "--collapse", options.collapses, "Write equal lines of several ranks once: \"[0-7] text\"");
  app.add_option_function<std::string>(
         "--log-format,--log_format",
         [&options](const std::string& format) { options.is_json = format == "json"; },
         "json: each line is an object with time, rank, stream and text (default text)")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json");
  app.add_option("--log-dir,--log_dir",
                 options.log_dir,
                 "Also write each rank's output to DIR/rank-3.out and DIR/rank-3.err")
      ->type_name("DIR");
  app.add_option("--rank-dir,--rank_dir",
                 options.rank_dir,
                 "Give each rank a folder of its own, DIR/rank-3, and its path in UNISONO_RANK_DIR")
      ->type_name("DIR");
  app.add_option("--master-addr,--master_addr,--master-address,--master_address",
                 options.master_addr,
                 "Address where the ranks meet (default: loopback)")
      ->type_name("HOST");
  app.add_option("--master-port,--master_port",
                 options.master_port,
                 "Port where the ranks meet (default: a free one)")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option_function<double>(
         "--grace",
         [&options](double seconds) {
           options.grace = std::chrono::milliseconds(std::llround(seconds * 1000));
         },
         fmt::format("Seconds that ranks have to end before they are killed (default {})",
                     launch::kDefaultGrace.count()))
      ->check(CLI::Range(0.0, kMaxGraceSeconds));
  app.add_option("--max-restarts,--max_restarts",
                 options.max_restarts,
                 "Number of times that all ranks are started again when one fails (default 0)")
      ->check(CLI::Range(0, kMaxRestarts));
  app.add_option_function<double>(
         "--stall-timeout,--stall_timeout",
         [&options](double seconds) {
           options.stall_timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
         },
         "Seconds after which a rank that others wait for, and that waits for none, counts as "
         "failed: one that is stopped, hangs or loops (default: never)")
      ->check(CLI::Range(1.0, kMaxStallSeconds));
  app.add_flag("--allow-plain-clients",
               options.allows_plain_clients,
               "Also serve clients without the job's secret that connect over loopback from this "
               "user; Python programs may always");
  add_binding_options(app, options);
  app.add_option("--backend-alias,--backend_alias",
                 options.backend_alias,
                 "Names of torch.distributed backends that select Unisono in Python programs, like "
                 "gloo=unisono,nccl=unisono");
  app.add_flag(
      "--verbose", options.verbose, "Log the launcher's actions, and debug lines of the ranks");
}

int run_as(Manner manner, const CommandLine& line, launch::hosts::Uplink* uplink = nullptr) {
  const bool is_launch = manner == Manner::kLaunch;
  CLI::App app(is_launch ? "Runs a program as several ranks that train together, each with\n"
                           "--local_rank=N as its first argument:\n"
                           "unisono launch [OPTIONS] PROGRAM [ARGUMENTS of the program...]"
                         : "Runs a program as several ranks that train together:\n"
                           "unisono run [OPTIONS] PROGRAM [ARGUMENTS of the program...]",
               is_launch ? "unisono launch" : "unisono run");
  RunArguments arguments;
  app.prefix_command();
  app.option_defaults()->take_last();
  add_program_options(app, arguments);
  add_job_options(app, arguments.options);
  add_node_options(app, arguments.nodes);
  add_host_options(app, arguments.hosts);
  add_torchrun_options(app, arguments.torchrun, arguments.options);
  read_defaults_from_environment(app);
  if (is_launch) {
    app.add_flag("--use-env,--use_env",
                 arguments.uses_environment_only,
                 "No --local_rank: the program reads LOCAL_RANK, as under unisono run");
  }
  add_examples_for(manner, app);
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  arguments.options.program.takes_local_rank = is_launch && !arguments.uses_environment_only;
  return run(app, arguments, line, uplink);
}

}  // namespace

int run_command(const CommandLine& line) {
  return run_as(Manner::kRun, line);
}

int launch_command(const CommandLine& line) {
  return run_as(Manner::kLaunch, line);
}

int host_command() {
  return launch::hosts::serve_uplink(
      [](launch::hosts::Uplink& uplink, std::vector<std::string> arguments) {
        std::vector<char*> argv;
        for (std::string& argument : arguments) {
          argv.push_back(argument.data());
        }
        const bool is_launch = arguments.front() == "launch";
        return run_as(is_launch ? Manner::kLaunch : Manner::kRun,
                      {.argc = static_cast<int>(argv.size()), .argv = argv.data()},
                      &uplink);
      });
}

}  // namespace unisono::cli
