#include "unisono/cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/cli/spellings.h"
#include "unisono/cli/suggestion.h"

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

// For a word that no command of this line takes.
std::string suggest_option(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  const std::vector<std::string> extras = app.remaining(true);
  const auto extra =
      std::ranges::find_if(extras, [](const std::string& word) { return word.starts_with("--"); });
  return extra == extras.end() ? "" : suggestion(*extra, option_names(*command));
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
  std::vector<std::string> words =
      respell(app, std::span(line.argv, static_cast<std::size_t>(line.argc)).subspan(1));
  std::ranges::reverse(words);
  try {
    app.parse(std::move(words));
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);
    }
    print_error(
        fmt::format("{}{}; see {} --help", error.what(), suggest_option(app), app.get_name()));
    return kWrongUsage;
  }
}

}  // namespace unisono::cli
