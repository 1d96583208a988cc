#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/roster/roster_codec.h"

namespace unisono::rendezvous {

/// What is wrong with those who came: doubled and impossible ranks, unequal world sizes, different
/// versions, addresses that the others can't reach, backends that some ranks can't have and others
/// insist on. `place` and `from_variables` are as in
/// ExchangeOptions. The same text wherever the same entries are looked at, but for these.
[[nodiscard]] std::optional<Error> find_problem(const std::vector<Entry>& entries,
                                                const std::string& place = "",
                                                const FromVariables& from_variables = {});

/// How many ranks of the largest world that somebody was told of are not among `entries`.
[[nodiscard]] std::size_t count_missing(const std::vector<Entry>& entries);

/// "rank 2" or "ranks 1, 4, 5, ..." of those that are not among `entries`.
[[nodiscard]] std::string describe_missing(const std::vector<Entry>& entries, int world_size);

}  // namespace unisono::rendezvous
