#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "unisono/base/deadline.h"

namespace unisono::net {

/// How many connections a listener holds at a time that have not proved anything yet: a part of the
/// process's descriptors, since those who know no secret must not take what the process itself and
/// its peers need.
[[nodiscard]] std::size_t max_strangers();

/// Any peer has introduced itself by then. Where others want to, a stranger has no longer.
inline constexpr std::chrono::seconds kStrangersTime{2};

/// A listener's connections that have not proved anything yet, under numbers of its own.
class Strangers {
 public:
  using Time = Deadline::Clock::time_point;

  explicit Strangers(std::size_t most = max_strangers()) : most_(most) {}

  void add(std::uint64_t id, Time now);

  /// True if it was one.
  bool remove(std::uint64_t id);

  [[nodiscard]] std::size_t size() const { return came_.size(); }

  [[nodiscard]] bool is_full() const { return size() >= most_; }

  /// The oldest, if its time is over.
  [[nodiscard]] std::optional<std::uint64_t> overdue(Time now) const;

 private:
  std::size_t most_;
  std::map<std::uint64_t, Time> came_;
  std::set<std::pair<Time, std::uint64_t>> by_age_;
};

}  // namespace unisono::net
