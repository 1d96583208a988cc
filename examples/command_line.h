// How the examples read their command lines: all alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace examples {

inline constexpr int kWrongCommandLine = 2;

/// Levenshtein's distance: letters to insert, to delete or to replace.
inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t column = 0; column < row.size(); ++column) {
    row[column] = column;
  }
  for (std::size_t line = 1; line <= from.size(); ++line) {
    std::size_t diagonal = std::exchange(row[0], line);
    for (std::size_t column = 1; column < row.size(); ++column) {
      const std::size_t replaced = diagonal + (from[line - 1] == to[column - 1] ? 0 : 1);
      diagonal =
          std::exchange(row[column], std::min({replaced, row[column] + 1, row[column - 1] + 1}));
    }
  }
  return row.back();
}

/// "; did you mean --epochs?" for --epoch; "" where no option is similar.
inline std::string suggestion(const CLI::App& app, const std::string& typed) {
  const std::string name = typed.substr(0, typed.find('='));
  std::string best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& spelling : option->get_lnames()) {
      const bool begins = ("--" + spelling).starts_with(name) || name.starts_with("--" + spelling);
      const std::size_t distance = begins ? 1 : edit_distance(name, "--" + spelling);
      if (distance < best_distance) {
        best = "--" + option->get_lnames().front();
        best_distance = distance;
      }
    }
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

/// Parses the command line. Options may be typed with underscores: --batch_size for --batch-size.
/// Ends the program after --help, and with exit code 2 where the command line is wrong.
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (word.starts_with("--")) {
      const auto name_end =
          word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size()));
      std::replace(word.begin(), name_end, '_', '-');
    }
  }
  std::reverse(words.begin(), words.end());  // CLI11 takes the last one first
  app.name(argv[0]);
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    if (error.get_exit_code() == 0 || unknown.empty()) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
      std::exit(app.exit(error) == 0 ? 0 : kWrongCommandLine);
    }
    std::fprintf(stderr,
                 "there is no option %s%s (--help lists the options)\n",
                 unknown.front().c_str(),
                 suggestion(app, unknown.front()).c_str());
    std::exit(kWrongCommandLine);  // NOLINT(concurrency-mt-unsafe): there is one thread yet
  }
}

}  // namespace examples
