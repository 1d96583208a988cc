#include "unisono/cli/doctor/examine_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"

namespace unisono::cli::doctor {
namespace {

std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Finding name_stranger(const std::string& name) {
  constexpr std::size_t kSimilar = 4;
  std::string advice = "unisono config lists the settings";
  std::size_t least = kSimilar;
  for (const ConfigRow& row : config_table()) {
    if (const std::size_t d = distance(name, row.name); d < least) {
      least = d;
      advice = fmt::format("is {} meant? unisono config lists the settings", row.name);
    }
  }
  return {.state = State::kWarning,
          .topic = "settings",
          .text = name + " is no setting of Unisono, and changes nothing",
          .advice = advice};
}

bool is_secret(const std::string& name) {
  return name == "UNISONO_SECRET";
}

}  // namespace

Findings examine_settings(const Environment& environment, const std::vector<std::string>& names) {
  Findings findings;
  try {
    (void)read_config(environment);
  } catch (const Error& error) {
    findings.push_back({.state = State::kProblem,
                        .topic = "settings",
                        .text = error.what(),
                        .advice = "unisono config says what each may be"});
  }
  for (const ConfigRow& row : config_table()) {
    const std::optional<std::string> value = environment(row.name);
    if (value && !is_secret(row.name)) {
      findings.push_back({.state = State::kInfo,
                          .topic = "settings",
                          .text = fmt::format("{}={}", row.name, *value)});
    }
  }
  for (const std::string& name : names) {
    const auto rows = config_table();
    if (std::none_of(
            rows.begin(), rows.end(), [&](const ConfigRow& row) { return name == row.name; })) {
      findings.push_back(name_stranger(name));
    }
  }
  return findings;
}

Config readable_config(const Environment& environment) {
  Config ignored;
  const auto rows = config_table();
  return read_config([&](const char* name) -> std::optional<std::string> {
    const std::optional<std::string> value = environment(name);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const ConfigRow& r) {
      return std::string_view(r.name) == name;
    });
    return value && (row == rows.end() || row->parse(*value, ignored)) ? value : std::nullopt;
  });
}

}  // namespace unisono::cli::doctor
