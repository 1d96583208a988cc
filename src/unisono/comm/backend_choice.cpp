#include "unisono/comm/backend_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::comm {
namespace {

constexpr const char* kFallbackVariable = "UNISONO_BACKEND_FALLBACK";
constexpr std::string_view kNative = "unisono";

// A message of a thousand ranks helps nobody.
constexpr std::size_t kMostRanks = 8;

std::string list_ranks(const std::vector<int>& ranks) {
  const auto shown = std::span(ranks).first(std::min(ranks.size(), kMostRanks));
  return fmt::format(
      "{} {}{}",
      ranks.size() == 1 ? "rank" : "ranks",
      fmt::join(shown, ", "),
      shown.size() < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown.size()) : "");
}

// A value that is neither must not read as off: the message for it comes before any other.
bool may_fall_back(const Environment& environment) {
  const std::optional<std::string> text = environment(kFallbackVariable);
  if (text && *text != "on" && *text != "off") {
    (void)read_config(environment);
  }
  return text == "on";
}

}  // namespace

BackendChoice choose_backend(const std::string& name, const Environment& environment) {
  const engine::Backend wanted = engine::look_up_backend(name);
  try {
    engine::Backend backend = engine::prepared(wanted, environment);
    const bool is_native = backend.make == nullptr;
    return {.backend = std::move(backend),
            .need = {.falls_back = is_native || may_fall_back(environment)}};
  } catch (const Error& error) {
    if (!may_fall_back(environment)) {
      throw;
    }
    return {.backend = engine::look_up_backend(kNative), .need = {.obstacle = error.what()}};
  }
}

engine::Backend agreed_backend(const engine::Backend& chosen,
                               const rendezvous::Roster& roster,
                               const Logger& logger) {
  std::map<std::string, std::vector<int>> obstacles;
  for (const rendezvous::Member& member : roster.members) {
    if (!member.backend.obstacle.empty()) {
      obstacles[member.backend.obstacle].push_back(member.rank);
    }
  }
  if (obstacles.empty()) {
    return chosen;
  }
  if (roster.rank == 0) {
    std::string text;
    for (const auto& [obstacle, ranks] : obstacles) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", obstacle, list_ranks(ranks));
    }
    logger.warning(fmt::format(
        "{}; all ranks use backend {} instead, as {} allows", text, kNative, kFallbackVariable));
  }
  return engine::look_up_backend(kNative);
}

const engine::Backend& backend_of(ProcessGroup& group) {
  return group_of(group).job()->backend();
}

}  // namespace unisono::comm
