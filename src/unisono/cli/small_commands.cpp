#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/gpus.h"
#include "unisono/base/reduction.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/engine/backends.h"
#include "unisono/launch/program.h"
#include "unisono/launch/python_startup.h"
#include "unisono/launch/run.h"
#include "unisono/rendezvous/local_rank.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::cli {

int config_command(const CommandLine& line) {
  CLI::App app("Prints the environment variables that configure Unisono", "unisono config");
  add_examples(app, {"unisono config", "unisono config | grep --after-context 1 TIMEOUT"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const Environment environment = process_environment();
  for (const ConfigRow& row : config_table()) {
    const bool is_set = environment(row.name).has_value();
    const std::string default_value = *row.default_value == '\0' ? "none" : row.default_value;
    fmt::print("{} ({}, default {}{})\n    {}\n",
               row.name,
               row.type,
               default_value,
               is_set ? "; set in this environment" : "",
               row.help);
  }
  return 0;
}

namespace {

// Quotes a text as one word of a shell.
std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (const char character : text) {
    quoted += character == '\'' ? std::string("'\\''") : std::string(1, character);
  }
  return quoted + "'";
}

}  // namespace

int alias_command(const CommandLine& line) {
  CLI::App app(
      "Prints the variables to set in a shell so that Python's torch.distributed uses Unisono "
      "for\nbackends of other names, under any launcher",
      "unisono alias");
  std::string alias;
  app.add_option("NAMES", alias, "NAME=unisono,...")->required();
  add_examples(app,
               {"unisono alias gloo=unisono,nccl=unisono",
                "eval \"$(unisono alias gloo=unisono,nccl=unisono)\""});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const launch::AliasVariables variables =
      launch::alias_variables(alias, launch::python_of({}, process_environment()));
  fmt::print("export UNISONO_BACKEND_ALIAS={}\n", quote(variables.alias));
  fmt::print("export PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}}\n",
             quote(variables.startup_folder));
  return 0;
}

namespace {

void print_row(std::string_view operation, std::string_view cells) {
  const std::string row = fmt::format("{:<24}{}", operation, cells);
  fmt::print("{}\n", std::string_view(row).substr(0, row.find_last_not_of(' ') + 1));
}

// Returns the names of the first `n` values that are in the set (`are_in`) or not in the set.
template <class Enum>
std::string names_in(engine::SetOf<Enum> set, int n, bool are_in) {
  std::string names;
  for (int value = 0; value < n; ++value) {
    if (set.has(static_cast<Enum>(value)) == are_in) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(static_cast<Enum>(value)));
    }
  }
  return names.empty() ? "none" : names;
}

void print_capabilities(const engine::Capabilities& has) {
  fmt::print("  reductions: {}\n", names_in(has.reductions, kReduceKindCount, true));
  fmt::print("  types that it does not reduce: {}\n",
             names_in(has.reduced_dtypes, kDTypeCount, false));
  fmt::print("  types that it does not move: {}\n", names_in(has.dtypes, kDTypeCount, false));
  fmt::print("  algorithm: {}\n", has.takes_algorithm ? "measured, or the caller's" : "its own");
  fmt::print("  results: {}\n",
             has.has_canonical_bits
                 ? "the same bits on every rank in every run, wherever the ranks are"
                 : "its own order of adding, which may differ with size and place of the ranks");
}

void print_backend(const engine::Backend& backend) {
  const std::string_view absence = backend.is_there ? "" : "can't be used here: ";
  fmt::print("\n{}: {}{}\n", backend.name, absence, backend.help);
  if (!backend.is_there) {
    return;
  }
  print_capabilities(backend.capabilities);
  if (backend.gpu_capabilities) {
    fmt::print(" on GPUs:\n");
    print_capabilities(*backend.gpu_capabilities);
  }
}

}  // namespace

int backends_command(const CommandLine& line) {
  CLI::App app("Prints the supported operations, by backend and device", "unisono backends");
  add_examples(app, {"unisono backends", "unisono backends | grep all_reduce"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  std::string names;
  std::string devices;
  for (const engine::Backend& backend : engine::backends()) {
    names += fmt::format("  {:<10}", backend.name);
    devices += "  cpu  cuda ";
  }
  print_row("", names);
  print_row("", devices);
  const auto word = [](bool is_there) { return is_there ? "yes" : "-"; };
  for (const std::string_view operation : engine::operation_names()) {
    std::string cells;
    for (const engine::Backend& backend : engine::backends()) {
      cells += fmt::format("  {:<3}  {:<5}",
                           word(backend.has(operation, DeviceType::kCpu)),
                           word(backend.has(operation, DeviceType::kCuda)));
    }
    print_row(operation, cells);
  }
  for (const engine::Backend& backend : engine::backends()) {
    print_backend(backend);
  }
  return 0;
}

namespace {

void warn(std::string_view what) {
  fmt::print(stderr, "[unisono] warning: {}\n", what);
}

void print_gpus(const Gpus& gpus) {
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  if (gpus.visible.empty()) {
    fmt::print("no GPU visible: {}\n", gpus.explanation);
    return;
  }
  for (const Gpu& gpu : gpus.visible) {
    fmt::print("cuda:{}  {}  {:.1f} GiB  {}\n",
               gpu.index,
               gpu.name,
               static_cast<double>(gpu.n_bytes) / kGibibyte,
               gpu.uuid);
  }
  if (!gpus.explanation.empty()) {
    warn(gpus.explanation);
  }
}

}  // namespace

int devices_command(const CommandLine& line) {
  CLI::App app(
      "Lists the GPUs that a program started here may use, and how they are\nassigned to the ranks "
      "of a node: cuda:LOCAL_RANK, or the CPU where there are none.",
      "unisono devices");
  int n_ranks = 0;
  app.add_option("-n,--nproc-per-node,--nproc_per_node",
                 n_ranks,
                 "Also print the GPU of each of this many ranks")
      ->check(CLI::Range(1, launch::kMaxWorkers))
      ->type_name("N");
  add_examples(app, {"unisono devices", "unisono devices -n 8"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const Environment environment = process_environment();
  const std::optional<int> own_rank = rendezvous::own_local_rank(environment);
  const Gpus gpus = find_gpus(environment);
  const int n_gpus = static_cast<int>(gpus.visible.size());
  print_gpus(gpus);
  for (int local_rank = 0; local_rank < n_ranks; ++local_rank) {
    fmt::print("local rank {}: {}\n",
               local_rank,
               rendezvous::describe(rendezvous::device_of_local_rank(local_rank, n_gpus)));
  }
  if (own_rank) {
    fmt::print("this is local rank {}: {}\n",
               *own_rank,
               rendezvous::describe(rendezvous::device_of_local_rank(*own_rank, n_gpus)));
  }
  if (const std::string shared = rendezvous::describe_shared_gpus(n_ranks, n_gpus);
      !shared.empty()) {
    warn(shared);
  }
  return 0;
}

namespace {

// Makes the folder of the file that ranks read by default, and returns the path of the file.
std::string make_place_at_home() {
  const base::Config config = read_config(process_environment());
  if (config.home.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "secret: HOME is not set; write: unisono secret FILE, and set "
                "UNISONO_SECRET_FILE=FILE on every rank");
  }
  const std::filesystem::path folder = std::filesystem::path(config.home) / ".unisono";
  std::error_code error;
  if (std::filesystem::create_directory(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    throw system_error("can't make the folder " + folder.string(), error.value());
  }
  return folder / "secret";
}

}  // namespace

int secret_command(const CommandLine& line) {
  CLI::App app(
      "Writes a new random secret into ~/.unisono/secret, or another file. Ranks and launchers "
      "on\nseveral nodes authenticate each other with it",
      "unisono secret");
  std::string file;
  app.add_option("FILE", file, "File to write, in place of ~/.unisono/secret");
  add_examples(app, {"unisono secret", "unisono secret job.secret"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const std::string path = file.empty() ? make_place_at_home() : file;
  rendezvous::write_secret(path);
  if (file.empty()) {
    fmt::print(
        "wrote {}, which all jobs of this user use, on every node with this home\n"
        "copy it to a node with another home: scp -rp ~/.unisono NODE:\n",
        path);
  } else {
    fmt::print("wrote {}; set UNISONO_SECRET_FILE to it on every rank\n", path);
  }
  return 0;
}

}  // namespace unisono::cli
