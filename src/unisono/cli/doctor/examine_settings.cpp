#include "unisono/cli/doctor/examine_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/similar_setting.h"

namespace unisono::cli::doctor {
namespace {

Finding name_stranger(const std::string& name) {
  const std::string similar = similar_setting(name);
  return {.state = State::kWarning,
          .topic = "settings",
          .text = name + " is no setting of Unisono, and changes nothing",
          .advice = (similar.empty() ? "" : fmt::format("is {} meant? ", similar)) +
                    "unisono config lists the settings"};
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
