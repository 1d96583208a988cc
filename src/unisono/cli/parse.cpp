#include "unisono/cli/parse.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>

namespace unisono::cli {
namespace {

constexpr std::string_view kExamples = "Examples:";

void collect_examples(CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string examples = command->get_footer();
    const std::size_t begin = std::min(kExamples.size(), examples.size());
    text += examples.substr(begin, examples.find('\n', begin + 1) - begin);
  }
  if (!text.empty()) {
    app.footer(std::string(kExamples) + text);
  }
}

}  // namespace

void print_error(std::string_view what) {
  fmt::print(stderr, "[unisono] error: {}\n", what);
}

void add_examples(CLI::App& app, std::initializer_list<std::string_view> lines) {
  std::string text(kExamples);
  for (const std::string_view line : lines) {
    text += fmt::format("\n  {}", line);
  }
  app.footer(text);
}

std::optional<int> parse(CLI::App& app, const CommandLine& line) {
  collect_examples(app);
  if (line.describe) {
    line.describe(app);
    return 0;
  }
  try {
    app.parse(line.argc, line.argv);
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
