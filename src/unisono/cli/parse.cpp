#include "unisono/cli/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/base/text.h"

namespace unisono::cli {

std::string suggestion(std::string_view typed,
                       std::span<const std::string> names,
                       std::string_view prefix) {
  constexpr std::size_t kShortest = 3;
  std::string wanted(typed.substr(0, typed.find('=')));
  wanted.erase(0, std::min(wanted.find_first_not_of('-'), wanted.size()));
  const bool has_underscores = wanted.find('_') != std::string::npos;
  std::ranges::replace(wanted, '_', '-');
  if (wanted.size() < kShortest) {
    return "";
  }
  const std::string* best = nullptr;
  // A third of the letters may differ, or only the end may be missing or surplus.
  std::size_t best_distance = wanted.size() / 3 + 1;
  for (const std::string& name : names) {
    const bool is_part =
        name.size() >= kShortest && (name.starts_with(wanted) || wanted.starts_with(name));
    const std::size_t found = is_part ? 1 : edit_distance(wanted, name);
    if (found < best_distance) {
      best = &name;
      best_distance = found;
    }
  }
  if (best == nullptr) {
    return "";
  }
  std::string meant = *best;
  if (has_underscores) {
    std::ranges::replace(meant, '-', '_');
  }
  return fmt::format("; did you mean {}{}?", prefix, meant);
}

bool starts_with_typographic_dash(std::string_view text) {
  // U+2010 to U+2015 and the minus sign.
  constexpr std::array<std::string_view, 7> kDashes{
      "\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"};
  return std::ranges::any_of(kDashes,
                             [text](std::string_view dash) { return text.starts_with(dash); });
}

namespace {

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

const CLI::Option* find_short(const CLI::App& app, char letter) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_sname(std::string(1, letter))) {
      return option;
    }
  }
  return nullptr;
}

std::string hyphened(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

// Processes the words of a command line in order.
class Respeller {
 public:
  explicit Respeller(const CLI::App& app) : app_(&app) {}

  // Returns the next word in the spelling of CLI11.
  std::string next(const std::string& word) {
    if (is_over_ || is_value_) {
      is_value_ = false;
      return word;
    }
    if (word == "--") {
      is_over_ = true;
    } else if (word.starts_with("--")) {
      return respell_long(word);
    } else if (word.starts_with("-")) {
      return respell_short(word);
    } else {
      enter(word);
    }
    return word;
  }

 private:
  // Handles an operand, the name of a command, or a program.
  void enter(const std::string& word) {
    const std::vector<const CLI::App*> commands = app_->get_subcommands({});
    is_over_ = commands.empty() && app_->get_prefix_command();
    if (commands.empty()) {
      return;
    }
    std::vector<std::string> names;
    for (const CLI::App* command : commands) {
      names.push_back(command->get_name());
      if (names.back() == word) {
        app_ = command;
        return;
      }
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("there is no command {} {}{}; there are {}; see {} --help",
                            app_->get_name(),
                            word,
                            suggestion(word, names, ""),
                            fmt::join(names, ", "),
                            app_->get_name()));
  }

  std::string respell_long(const std::string& word) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string typed = word.substr(2, equals - 2);
    const CLI::Option* found = nullptr;
    std::vector<std::string> fitting;
    for (const CLI::Option* option : app_->get_options()) {
      if (option->check_lname(typed)) {
        is_value_ = takes_value(*option) && equals == word.size();
        return word;
      }
      const std::vector<std::string>& names = option->get_lnames();
      const auto fits = std::ranges::find_if(names, [&](const std::string& name) {
        return hyphened(name).starts_with(hyphened(typed));
      });
      if (fits != names.end()) {
        found = option;
        fitting.push_back("--" + *fits);
      }
    }
    if (fitting.size() > 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--{} may be {}; see {} --help",
                              typed,
                              fmt::join(fitting, " or "),
                              app_->get_name()));
    }
    if (found == nullptr) {
      return word;
    }
    is_value_ = takes_value(*found) && equals == word.size();
    return fitting.front() + word.substr(equals);
  }

  // Handles "-r", "-r3", "-r=3", "-mn", "-np".
  std::string respell_short(std::string word) {
    constexpr std::string_view kMpiruns = "-np";
    const CLI::Option* const n = find_short(*app_, 'n');
    if (n != nullptr && takes_value(*n) && word.substr(0, word.find('=')) == kMpiruns) {
      word.erase(kMpiruns.size() - 1, 1);
    }
    for (std::size_t i = 1; i < word.size(); ++i) {
      const CLI::Option* const option = find_short(*app_, word[i]);
      if (option == nullptr) {
        return word;
      }
      if (takes_value(*option)) {
        is_value_ = i + 1 == word.size();
        if (!is_value_ && word[i + 1] == '=') {
          word.erase(i + 1, 1);
        }
        return word;
      }
    }
    return word;
  }

  const CLI::App* app_;
  bool is_value_ = false;  // The next word is the value of an option.
  bool is_over_ = false;
};

}  // namespace

std::vector<std::string> respell(const CLI::App& app, std::span<char* const> words) {
  Respeller respeller(app);
  std::vector<std::string> result;
  result.reserve(words.size());
  for (const char* word : words) {
    result.push_back(respeller.next(word));
  }
  return result;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> result;
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& spellings = option->get_lnames();
    // The first spelling has hyphens.
    result.insert(result.end(), spellings.begin(), spellings.begin() + (spellings.empty() ? 0 : 1));
  }
  return result;
}

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

// Returns a suggestion for a word that no command accepts.
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
