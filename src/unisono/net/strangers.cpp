#include "unisono/net/strangers.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace unisono::net {

std::size_t max_strangers() {
  constexpr rlim_t kLeast = 16;
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::max(limit.rlim_cur / 4, kLeast) : kLeast;
}

void Strangers::add(std::uint64_t id, Time now) {
  came_.emplace(id, now);
  by_age_.emplace(now, id);
}

bool Strangers::remove(std::uint64_t id) {
  const auto found = came_.find(id);
  if (found == came_.end()) {
    return false;
  }
  by_age_.erase({found->second, id});
  came_.erase(found);
  return true;
}

std::optional<std::uint64_t> Strangers::overdue(Time now) const {
  if (by_age_.empty() || by_age_.begin()->first + kStrangersTime > now) {
    return std::nullopt;
  }
  return by_age_.begin()->second;
}

}  // namespace unisono::net
