#include "unisono/net/unauthenticated_connections.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace unisono::net {

std::size_t max_strangers() {
  constexpr rlim_t kLeast = 16;
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::max(limit.rlim_cur / 4, kLeast) : kLeast;
}

UnauthenticatedConnections::UnauthenticatedConnections(std::size_t most)
    : most_(most),
      silent_time_(
          std::min<std::chrono::milliseconds>(std::chrono::milliseconds(most), kHandshakeTime)) {}

void UnauthenticatedConnections::add(std::uint64_t id, Time now) {
  const Time end = now + silent_time_;
  stays_.emplace(id, Stay{.begin = now, .end = end});
  by_end_.emplace(end, id);
}

void UnauthenticatedConnections::note_word(std::uint64_t id) {
  const auto found = stays_.find(id);
  if (found != stays_.end()) {
    Stay& stay = found->second;
    by_end_.erase({stay.end, id});
    stay.end = stay.begin + kHandshakeTime;
    by_end_.emplace(stay.end, id);
  }
}

bool UnauthenticatedConnections::remove(std::uint64_t id) {
  const auto found = stays_.find(id);
  if (found == stays_.end()) {
    return false;
  }
  by_end_.erase({found->second.end, id});
  stays_.erase(found);
  return true;
}

std::optional<std::uint64_t> UnauthenticatedConnections::overdue(Time now) const {
  if (next_due() > now) {
    return std::nullopt;
  }
  return by_end_.begin()->second;
}

UnauthenticatedConnections::Time UnauthenticatedConnections::next_due() const {
  return by_end_.empty() ? Time::max() : by_end_.begin()->first;
}

LimitedLogger::LimitedLogger(base::Logger logger,
                             std::size_t most,
                             std::chrono::milliseconds period)
    : logger_(std::move(logger)), most_(most), period_(period) {}

void LimitedLogger::warning(std::string_view text, Time now) {
  if (now - begin_ >= period_) {
    catch_up(now);
    begin_ = now;
    n_lines_ = 0;
  }
  if (++n_lines_ <= most_) {
    logger_.warning(text);
  } else {
    last_ = text;
  }
}

std::optional<LimitedLogger::Time> LimitedLogger::due() const {
  return n_lines_ > most_ ? std::optional(begin_ + period_) : std::nullopt;
}

void LimitedLogger::catch_up(Time now) {
  if (n_lines_ > most_) {
    logger_.warning(fmt::format("and {} more in the last {:.3g} s, the last: {}",
                                n_lines_ - most_,
                                std::chrono::duration<double>(now - begin_).count(),
                                last_));
    begin_ = now;
    n_lines_ = 0;
  }
}

}  // namespace unisono::net
