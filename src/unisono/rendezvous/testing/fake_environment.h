#pragma once

#include <map>
#include <optional>
#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

using FakeVariables = std::map<std::string, std::string>;

/// An environment for tests, with these variables and no others.
inline Environment fake(const FakeVariables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

/// `variables`, with `changes` in place of what is there.
inline FakeVariables changed(FakeVariables variables, const FakeVariables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

/// `variables` without one.
inline FakeVariables without(FakeVariables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

}  // namespace unisono::rendezvous
