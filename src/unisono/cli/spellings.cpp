#include "unisono/cli/spellings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/cli/suggestion.h"

namespace unisono::cli {
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

// One word after the other.
class Respeller {
 public:
  explicit Respeller(const CLI::App& app) : app_(&app) {}

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
  // An operand, a command's name or a program.
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

  // "-r", "-r3", "-r=3", "-mn", "-np".
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
  bool is_value_ = false;  // The next word belongs to an option.
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
    // The first one has hyphens.
    result.insert(result.end(), spellings.begin(), spellings.begin() + (spellings.empty() ? 0 : 1));
  }
  return result;
}

}  // namespace unisono::cli
