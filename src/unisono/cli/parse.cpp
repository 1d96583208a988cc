#include "unisono/cli/parse.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>

namespace unisono::cli {

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);
    }
    fmt::print(stderr, "[unisono] error: {}; see {} --help\n", error.what(), app.get_name());
    return kWrongUsage;
  }
}

}  // namespace unisono::cli
