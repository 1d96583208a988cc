#include "unisono/cli/parse.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>

namespace unisono::cli {

void print_error(std::string_view what) {
  fmt::print(stderr, "[unisono] error: {}\n", what);
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);
    }
    print_error(fmt::format("{}; see {} --help", error.what(), app.get_name()));
    return kWrongUsage;
  }
}

}  // namespace unisono::cli
