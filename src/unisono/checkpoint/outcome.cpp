#include "unisono/checkpoint/outcome.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {
namespace {

constexpr char kDone = '\xff';

// The first byte tells whether it went well, and else which code the error has.
std::string outcome_of(const std::function<std::string()>& step) {
  try {
    return kDone + step();
  } catch (const Error& error) {
    return static_cast<char>(error.code()) + std::string(error.what());
  } catch (const std::exception& error) {
    return static_cast<char>(ErrorCode::kInternal) + std::string(error.what());
  }
}

}  // namespace

std::vector<std::string> do_on_all(ProcessGroup& group,
                                   std::optional<std::chrono::milliseconds> timeout,
                                   const std::function<std::string()>& step) {
  const ObjectOptions options{.timeout = timeout};
  std::vector<std::string> outcomes = all_gather_object(group, outcome_of(step), options);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const std::string& outcome = outcomes[rank];
    UNISONO_CHECK(!outcome.empty(), "an outcome has a first byte");
    if (outcome[0] != kDone) {
      throw Error(static_cast<ErrorCode>(outcome[0]),
                  fmt::format("rank {} of {}: {}", rank, outcomes.size(), outcome.substr(1)));
    }
  }
  for (std::string& outcome : outcomes) {
    outcome.erase(0, 1);
  }
  return outcomes;
}

}  // namespace unisono::checkpoint
