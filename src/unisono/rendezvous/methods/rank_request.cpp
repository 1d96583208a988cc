#include <fmt/format.h>

#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

RankRequest read_rank_request(const InitMethod& method,
                              const GivenRank& given,
                              bool needs_rank,
                              std::string problems) {
  const auto complain = [&problems](const std::string& problem) {
    problems += (problems.empty() ? "" : "; ") + problem;
  };
  const std::optional<int> rank =
      given.rank >= 0 ? std::optional(given.rank) : method.number("rank", 0);
  const std::optional<int> world_size =
      given.world_size >= 0 ? std::optional(given.world_size) : method.number("world_size", 1);
  if (given.rank < -1) {
    complain(fmt::format("rank {} is negative", given.rank));
  } else if (!rank && needs_rank) {
    complain("there is no rank");
  }
  if (given.world_size < -1) {
    complain(fmt::format("world_size {} is negative", given.world_size));
  } else if (!world_size) {
    complain("there is no world_size");
  } else if (*world_size == 0) {
    complain("a world_size of 0 leaves no rank");
  } else if (rank && *rank >= *world_size) {
    complain(fmt::format("rank {} is not below world_size {}", *rank, *world_size));
  }
  for (const auto& [name, value] : method.query) {
    if (name != "rank" && name != "world_size" && (needs_rank || name != "group_name")) {
      complain(fmt::format("there is no option {}", name));
    }
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": {}; give each process {}, in InitOptions or as {}",
                            method.text,
                            problems,
                            needs_rank ? "its rank and the world size" : "the world size",
                            needs_rank ? "tcp://10.0.0.1:29500?rank=0&world_size=4"
                                       : "?world_size=4 behind the method"));
  }
  const auto name = method.query.find("group_name");
  return {.rank = rank,
          .world_size = world_size.value_or(1),
          .group_name = name == method.query.end() ? "" : name->second};
}

}  // namespace unisono::rendezvous
