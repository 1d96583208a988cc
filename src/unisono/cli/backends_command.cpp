#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/capabilities.h"

namespace unisono::cli {
namespace {

void print_row(std::string_view operation, std::string_view cells) {
  const std::string row = fmt::format("{:<24}{}", operation, cells);
  fmt::print("{}\n", std::string_view(row).substr(0, row.find_last_not_of(' ') + 1));
}

// Names of those of the first `n` values that are in the set, or not.
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
  CLI::App app("Prints which operations there are, by backend and device", "unisono backends");
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

}  // namespace unisono::cli
