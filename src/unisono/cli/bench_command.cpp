#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/cli/bench_job.h"
#include "unisono/cli/bench_operations.h"
#include "unisono/cli/bench_parse.h"
#include "unisono/cli/bench_report.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/cli/run_arguments.h"
#include "unisono/comm/init.h"
#include "unisono/engine/backends.h"
#include "unisono/launch/run.h"
#include "unisono/rendezvous/find_launch_info.h"

namespace unisono::cli {
namespace {

// Arguments of the command line.
struct BenchArguments {
  std::string operation;
  std::string n_ranks;
  int n_nodes = 1;
  std::string sizes = "8,1K,16K,256K,1M,4M,16M,64M";
  std::string dtype = "f32";
  std::string memory = "private";
  std::string backend = "unisono";
  std::string algorithm = "auto";
  bool is_checked = false;
  bool is_verbose = false;
  std::string json_path;
  double seconds = 0.5;
  launch::RunOptions run = {};  ///< Options of the ranks that this command starts.
};

Error invalid(const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "bench: " + problem};
}

// Returns "a|b|all", the form in which --help and completion expect the choices of an option.
std::string operation_names() {
  std::string names;
  for (const bench::BenchOperation& operation : bench::operation_table()) {
    names += operation.name + std::string("|");
  }
  return names + "all";
}

template <class T>
std::string names_of(std::span<const T> values) {
  std::string names;
  for (const T value : values) {
    names += (names.empty() ? "" : "|") + std::string(to_string(value));
  }
  return names;
}

std::string dtype_names() {
  std::vector<DType> dtypes;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    dtypes.push_back(static_cast<DType>(dtype));
  }
  return names_of<DType>(dtypes);
}

// Returns the names of the available backends.
std::string backend_names() {
  std::string names;
  for (const engine::Backend& backend : engine::backends()) {
    if (backend.is_there) {
      names += (names.empty() ? "" : "|") + backend.name;
    }
  }
  return names;
}

void add_options(CLI::App& app, BenchArguments& arguments) {
  constexpr double kMaxSeconds = 1e6;
  app.add_option("OP", arguments.operation, "Operation to measure")
      ->type_name(operation_names())
      ->required();
  app.add_option("-n,--nproc-per-node,--nproc_per_node",
                 arguments.n_ranks,
                 "Number of ranks to start (default: one per core); not needed in a job that was "
                 "started already")
      ->type_name("N|auto|cpu");
  app.add_option("--nodes",
                 arguments.n_nodes,
                 "Let blocks of ranks act as nodes of their own, which reach each other by "
                 "tcp (default 1)");
  app.add_option(
      "--sizes", arguments.sizes, "Bytes: 8,1K,3M, or 8:64M:x4 (default " + arguments.sizes + ")");
  app.add_option("--dtype", arguments.dtype, "Type of the elements (default f32)")
      ->type_name(dtype_names());
  app.add_option("--memory", arguments.memory, "Kind of memory of the buffers (default private)")
      ->type_name(names_of<bench::Memory>(bench::kMemories));
  app.add_option("--backend",
                 arguments.backend,
                 "Backend of the operations (default unisono); mpi needs ranks started by mpirun")
      ->type_name(backend_names());
  app.add_option(
         "--algorithm",
         arguments.algorithm,
         "Algorithm (default auto); reduce has one_shot and two_shot, reduce_scatter too on one "
         "node, else two_shot")
      ->type_name(names_of<Algorithm>(kAlgorithms));
  app.add_flag("--check", arguments.is_checked, "Compare every element with its expected value");
  app.add_option(
         "--json", arguments.json_path, "Write the results to FILE too, a line of JSON each")
      ->type_name("FILE");
  app.add_flag(
      "--verbose",
      arguments.is_verbose,
      "Log the measured costs of the links, and the reason for each choice of an algorithm");
  add_binding_options(app, arguments.run);
  app.add_option("--seconds", arguments.seconds, "Approximate time for each size (default 0.5)")
      ->check(CLI::Range(0.0, kMaxSeconds));
  add_examples(app,
               {"unisono bench all_reduce -n 4",
                "mpirun -n 4 unisono bench all_reduce --backend mpi",
                "unisono bench all -n 4 --sizes 1K:64M:x4 --json results.jsonl",
                "unisono bench all_reduce -n 8 --nodes 2 --algorithm ring --check"});
}

bench::BenchOptions make_options(const BenchArguments& arguments) {
  if (std::isnan(arguments.seconds)) {
    throw invalid("--seconds nan: give a number of seconds");
  }
  bench::BenchOptions options;
  options.algorithm = bench::parse_algorithm(arguments.algorithm);
  options.operations = bench::find_operations(arguments.operation, options.algorithm);
  options.n_pretend_nodes = arguments.n_nodes;
  options.sizes = bench::parse_sizes(arguments.sizes);
  options.dtype = bench::parse_dtype(arguments.dtype);
  options.memory = bench::parse_memory(arguments.memory);
  options.backend = engine::look_up_backend(arguments.backend).name;
  options.is_checked = arguments.is_checked;
  options.is_verbose = arguments.is_verbose;
  options.json_path = arguments.json_path;
  options.seconds = std::chrono::duration<double>(arguments.seconds);
  return options;
}

// Returns the number of ranks that are running or will be started.
int count_ranks(const BenchArguments& arguments, const Environment& environment, bool is_in_job) {
  const std::string n_ranks = arguments.n_ranks.empty() ? "auto" : arguments.n_ranks;
  if (!is_in_job) {
    return launch::parse_worker_count(n_ranks);
  }
  const int world_size = rendezvous::find_launch_info(environment).world_size;
  if (!arguments.n_ranks.empty() && launch::parse_worker_count(n_ranks) != world_size) {
    throw invalid(
        fmt::format("-n {}, but this is a rank of a job of {}", arguments.n_ranks, world_size));
  }
  return world_size;
}

std::string own_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size < 0 || static_cast<std::size_t>(size) == path.size()) {
    throw system_error("bench: can't find the path of this program: /proc/self/exe", errno);
  }
  return {path.data(), static_cast<std::size_t>(size)};
}

// Starts this command again as the ranks of a job.
int start_ranks(int n_ranks, launch::RunOptions run, std::span<char*> arguments) {
  run.n_workers = n_ranks;
  run.program.argv = {own_path(), "bench"};
  run.program.argv.insert(run.program.argv.end(), arguments.begin(), arguments.end());
  run.program.no_python = true;
  return launch::run(run);
}

}  // namespace

int bench_command(const CommandLine& line) {
  CLI::App app(
      "Measures collective operations: time, and bandwidth as nccl-tests counts it:\n"
      "unisono bench OP -n RANKS [OPTIONS]",
      "unisono bench");
  BenchArguments arguments;
  add_options(app, arguments);
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const bench::BenchOptions options = make_options(arguments);
  const Environment environment = process_environment();
  const bool is_in_job = rendezvous::is_in_job(environment);
  const int n_ranks = count_ranks(arguments, environment, is_in_job);
  if (options.n_pretend_nodes < 1 || options.n_pretend_nodes > n_ranks) {
    throw invalid(fmt::format(
        "--nodes {}: {} ranks make 1 to {} nodes", arguments.n_nodes, n_ranks, n_ranks));
  }
  if (arguments.operation != "all" && n_ranks < options.operations.front().min_ranks) {
    throw invalid(fmt::format(
        "{} needs {} ranks", arguments.operation, options.operations.front().min_ranks));
  }
  if (is_in_job) {
    return bench::run_in_job(options);
  }
  (void)comm::choose_backend(options.backend, parse_config(environment), environment);
  if (!options.json_path.empty()) {
    bench::check_json_path(options.json_path);
  }
  return start_ranks(
      n_ranks, arguments.run, {line.argv + 1, static_cast<std::size_t>(line.argc) - 1});
}

}  // namespace unisono::cli
