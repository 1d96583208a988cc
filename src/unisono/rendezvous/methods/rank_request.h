#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

/// What a method and its program say of a process's place.
struct RankRequest {
  std::optional<int> rank;  ///< Nothing: any.
  int world_size;
  std::string group_name;
};

/// What a kind of method takes.
struct RankRules {
  std::vector<std::string_view> options;  ///< Of "rank", "world_size", "group_name".
  bool needs_rank = false;
  std::string problems = {};  ///< What was found already.
  std::string advice;         ///< The end of the message.
};

/// From the options of the method; `given` comes first.
///
/// Throws Error(kInvalidArgument) with everything that is missing or wrong, other options included.
[[nodiscard]] RankRequest read_rank_request(const InitMethod& method,
                                            const GivenRank& given,
                                            const RankRules& rules);

/// The same where processes find each other, and ranks may be given out.
[[nodiscard]] RankRequest read_rank_request(const InitMethod& method, const GivenRank& given);

}  // namespace unisono::rendezvous
