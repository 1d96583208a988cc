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
inline constexpr std::chrono::seconds kHandshakeTime{2};

/// A listener's connections that have not proved anything yet, under numbers of its own.
///
/// Where others want to come, one that has said nothing yet has 1 ms for each place that there is:
/// a peer speaks as soon as it is connected, and a thousand that stay silent are gone in a second.
class UnauthenticatedConnections {
 public:
  using Time = Deadline::Clock::time_point;

  explicit UnauthenticatedConnections(std::size_t most = max_strangers());

  void add(std::uint64_t id, Time now);

  /// It has said something, so it has more time; nothing if it is none.
  void note_word(std::uint64_t id);

  /// True if it was one.
  bool remove(std::uint64_t id);

  [[nodiscard]] std::size_t size() const { return stays_.size(); }

  [[nodiscard]] bool is_full() const { return size() >= most_; }

  /// The first whose time was over, if that is so.
  [[nodiscard]] std::optional<std::uint64_t> overdue(Time now) const;

  /// When the next one's time is over; long from now where there is none.
  [[nodiscard]] Time next_due() const;

 private:
  struct Stay {
    Time begin;
    Time end;
  };

  std::size_t most_;
  std::chrono::milliseconds silent_time_;
  std::map<std::uint64_t, Stay> stays_;
  std::set<std::pair<Time, std::uint64_t>> by_end_;
};

}  // namespace unisono::net
