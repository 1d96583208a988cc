#include "unisono/rendezvous/agent_store.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/launcher_process.h"

namespace unisono::rendezvous {
namespace {

constexpr char kPort[] = "MASTER_PORT";
// Those that are set are of one rank, also where a rank of one launcher has started another, whose
// ranks have a file or a job of their own.
constexpr std::array kRanksOwn{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"};

bool is_true(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return text == "true" || text == "1";
}

bool is_port_launchers(const Environment& environment) {
  std::vector<std::string> entries;
  for (const char* const name : kRanksOwn) {
    if (const std::optional<std::string> value = environment(name)) {
      entries.push_back(std::string(name) + "=" + *value);
    }
  }
  if (entries.empty()) {
    return true;
  }
  const std::optional<std::string> first = value_at_start(kPort, entries);
  return !first || environment(kPort).value_or(*first) == *first;
}

}  // namespace

bool has_agent_store(const Environment& environment) {
  return is_true(environment("TORCHELASTIC_USE_AGENT_STORE").value_or("")) &&
         is_port_launchers(environment);
}

}  // namespace unisono::rendezvous
