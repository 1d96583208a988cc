#pragma once

#include <optional>
#include <string>

#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

/// What a method and its program say of a process's place.
struct RankRequest {
  std::optional<int> rank;  ///< Nothing: any.
  int world_size;
  std::string group_name;
};

/// From the options of the method; `given` comes first. Where every process `needs_rank`, there is
/// no group_name. `problems` are what was found already.
///
/// Throws Error(kInvalidArgument) with everything that is missing or wrong, other options included.
[[nodiscard]] RankRequest read_rank_request(const InitMethod& method,
                                            const GivenRank& given,
                                            bool needs_rank = false,
                                            std::string problems = "");

}  // namespace unisono::rendezvous
