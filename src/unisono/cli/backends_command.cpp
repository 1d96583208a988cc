#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/buffer.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/engine/backends.h"

namespace unisono::cli {
namespace {

void print_row(std::string_view operation, std::string_view cells) {
  const std::string row = fmt::format("{:<24}{}", operation, cells);
  fmt::print("{}\n", std::string_view(row).substr(0, row.find_last_not_of(' ') + 1));
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
                           word(backend.has(DeviceType::kCpu)),
                           word(backend.has(DeviceType::kCuda)));
    }
    print_row(operation, cells);
  }
  fmt::print("\n");
  for (const engine::Backend& backend : engine::backends()) {
    const std::string absence = backend.is_there ? "" : fmt::format("{}: ", backend.absence());
    fmt::print("{}: {}{}\n", backend.name, absence, backend.help);
  }
  return 0;
}

}  // namespace unisono::cli
