// Command line, processes and exit code of an example.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <unisono/unisono.h>

namespace examples {

inline constexpr int kWrongCommandLine = 2;

/// Adds an option for a number above 0. The help shows the default.
template <class Number>
CLI::Option* add_positive(CLI::App& app,
                          const std::string& names,
                          Number& value,
                          const std::string& help) {
  CLI::Option* const option = app.add_option(names, value, help)->capture_default_str();
  if constexpr (std::is_integral_v<Number>) {
    return option->check(CLI::Range(1, std::numeric_limits<int>::max()));
  } else {
    return option->check(CLI::PositiveNumber);
  }
}

/// Adds an option for a number of 0 or more. The help shows the default.
template <class Number>
CLI::Option* add_non_negative(CLI::App& app,
                              const std::string& names,
                              Number& value,
                              const std::string& help) {
  return app.add_option(names, value, help)->check(CLI::NonNegativeNumber)->capture_default_str();
}

/// Adds an option for the number of ranks that the program starts; see run_or_spawn().
inline CLI::Option* add_n_ranks(CLI::App& app, const std::string& name, int& value) {
  return app
      .add_option(name, value, "Number of ranks to start; without it, a launcher starts them")
      ->check(CLI::PositiveNumber);
}

/// Levenshtein distance: the number of letters to insert, delete or replace.
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

/// Returns "; did you mean --epochs?" for --epoch, and "" if no option is similar.
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

/// Parses the command line. Underscores are accepted for hyphens: --batch_size for --batch-size.
/// Ends the program after --help, and with exit code 2 after a wrong command line.
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (word.starts_with("--")) {
      const auto name_end =
          word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size()));
      std::replace(word.begin(), name_end, '_', '-');
    }
  }
  std::reverse(words.begin(), words.end());  // CLI11 parses from the back.
  app.name(argv[0]);
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    if (error.get_exit_code() == 0 || unknown.empty()) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): the only thread so far
      std::exit(app.exit(error) == 0 ? 0 : kWrongCommandLine);
    }
    std::fprintf(stderr,
                 "there is no option %s%s (--help lists the options)\n",
                 unknown.front().c_str(),
                 suggestion(app, unknown.front()).c_str());
    std::exit(kWrongCommandLine);  // NOLINT(concurrency-mt-unsafe): the only thread so far
  }
}

/// Calls `run(options)` in this process, the rank of a launcher; with `n_ranks` above 0, in this
/// number of new processes.
template <class Options>
void run_or_spawn(int n_ranks, void (*run)(const Options&), const Options& options) {
  if (n_ranks == 0) {
    run(options);
  } else {
    unisono::spawn([run](int /*rank*/, const Options& given) { run(given); },
                   std::tuple(options),
                   {.nprocs = n_ranks});
  }
}

/// Calls `run()` and returns the exit code of main(). After an exception the code is 1, and the
/// message is on stderr, after the name of the program.
template <class Run>
int exit_code_of(const char* program, const Run& run) {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, unisono::error_text(error).c_str());
    return 1;
  }
}

}  // namespace examples
