#include "unisono/engine/native/point_to_point/message_operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "unisono/base/guarded_pages.h"

namespace unisono::engine {
namespace {

// Number of entries of a long list that a text includes.
constexpr std::size_t kMostOperations = 3;
constexpr std::size_t kMostTags = 8;
constexpr std::size_t kMostRanks = 16;

// "recv (...), send (...) and 4 more".
std::string list(std::span<const std::string> operations) {
  const auto shown = operations.first(std::min(operations.size(), kMostOperations));
  const std::size_t n_more = operations.size() - shown.size();
  return fmt::format(
      "{}{}", fmt::join(shown, ", "), n_more == 0 ? "" : fmt::format(" and {} more", n_more));
}

// Detects accidental writes; collisions are acceptable.
std::size_t hash_of(const Buffer& buffer) {
  return std::hash<std::string_view>()(
      {static_cast<const char*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())});
}

// With all bits set, floating-point values are NaN.
constexpr std::byte kPoison{0xFF};

std::span<std::byte> bytes_in(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
}

// Returns a check that the buffer still has its present contents. The check throws
// Error(kInvalidArgument), which begins with `who`, if the contents have changed. Hashes the whole
// buffer now and in the check, and keeps the buffer alive.
std::function<void()> unchanged_check(const Buffer& buffer, std::string who) {
  return [buffer, hash = hash_of(buffer), who = std::move(who)] {
    if (hash_of(buffer) != hash) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the buffer was written to before wait()", who));
    }
  };
}

// Redirects a receive into other memory, to which `buffer` refers from now on. The returned check
// copies the message into the original buffer, and throws Error(kInvalidArgument), which begins
// with `who`, if the original buffer was accessed before. Until the check the original buffer
// reads as NaN, since all bits are set, and whole pages of the buffer are guarded.
std::function<void()> untouched_check(Buffer& buffer, std::string who) {
  const std::span<std::byte> bytes = bytes_in(buffer);
  std::ranges::fill(bytes, kPoison);
  auto landing = std::make_shared<std::vector<std::byte>>(bytes.size());
  auto pages =
      std::make_shared<GuardedPages>(bytes, fmt::format("{}: before wait() the buffer", who));
  Buffer elsewhere = buffer;
  elsewhere.data = landing->data();
  elsewhere.owner = landing;
  return [target = std::exchange(buffer, elsewhere),
          who = std::move(who),
          landing = std::move(landing),
          pages = std::move(pages)]() mutable {
    GuardedPages::Touch touch = pages->first_touch();
    pages.reset();
    const std::span<std::byte> own = bytes_in(target);
    const bool is_changed =
        std::ranges::any_of(own, [](std::byte value) { return value != kPoison; });
    if (touch == GuardedPages::Touch::kNone && is_changed) {
      touch = GuardedPages::Touch::kWrite;
    }
    if (!own.empty()) {
      std::memcpy(own.data(), landing->data(), own.size());
    }
    if (touch != GuardedPages::Touch::kNone) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the buffer was {} before wait()", who, to_string(touch)));
    }
  };
}

}  // namespace

void MessageOperation::guard_buffer() {
  std::string who = fmt::format("{} {}", group().prefix, text());
  handle->set_check(is_send ? unchanged_check(buffer, std::move(who))
                            : untouched_check(buffer, std::move(who)));
}

void MessageOperation::complete() {
  const std::shared_ptr<MessageHandle> completed = std::move(handle);
  // A separate error for each handle, because threads must not share the text of an error.
  std::exception_ptr exception =
      error ? std::make_exception_ptr(Error(error->code(), error->what())) : nullptr;
  // Releases the buffer before the caller is notified.
  buffer = {};
  completed->complete(source, std::move(exception));
}

transport::WaitMonitor& MessageOperation::wait_monitor() {
  if (!wait_monitor_) {
    wait_monitor_.emplace(TimeLimit(timeout_),
                          waiting_.parts.config.stall,
                          group().failure,
                          static_cast<const transport::WaitObserver&>(*this));
  }
  return *wait_monitor_;
}

Deadline MessageOperation::next_check() {
  return is_overdue_ ? Deadline::never() : wait_monitor().next_check();
}

void MessageOperation::check() {
  if (is_overdue_) {
    return;
  }
  bool is_first = true;
  if (std::exchange(n_seen_bytes_, n_moved_bytes) != n_moved_bytes) {
    wait_monitor().note_progress();
  }
  try {
    wait_monitor().check([&] {
      if (!is_first) {
        waiting_.poll_again();
      }
      is_first = false;
      return has_ended ? std::vector<int>{} : std::vector<int>{peer};
    });
  } catch (const Error& problem) {
    if (is_overdue_) {
      return;
    }
    if (group().failure.is_set()) {
      throw;
    }
    throw Error(problem.code(), fmt::format("{}: {}", text(), problem.what()));
  }
}

std::string MessageOperation::describe_late() const {
  return peer == kAnyRank ? "a message from any rank"
                          : group().events.describe_late(std::span(&peer, 1));
}

std::string MessageOperation::describe_unexpected() const {
  const std::vector<int> tags =
      is_send ? std::vector<int>() : waiting_.matcher.find_unexpected_tags(peer);
  if (tags.empty()) {
    return "";
  }
  const auto shown = std::span(tags).first(std::min(tags.size(), kMostTags));
  return fmt::format("; {} messages with tag {}{}, which no receive matches",
                     peer == kAnyRank ? "there are" : "it has sent",
                     fmt::join(shown, ", "),
                     shown.size() < tags.size() ? ", ..." : "");
}

Error MessageOperation::timed_out(std::span<const int> /*late_ranks*/) const {
  is_overdue_ = true;
  return {ErrorCode::kTimeout, "it timed out"};
}

void MessageOperation::expire(const std::string& late) const {
  throw Error(ErrorCode::kTimeout,
              fmt::format("{}: timed out waiting for {}{}",
                          text(),
                          late.empty() ? describe_late() : late,
                          describe_unexpected()));
}

bool MessageOperation::has_departed(int rank) const {
  return waiting_.matcher.has_left(rank) ||
         (group().events.has_left_messages(rank) &&
          // A rank of this node may have sent its last message after this rank's last poll.
          !waiting_.matcher.has_unread(rank));
}

std::optional<Error> MessageOperation::departed(std::span<const int> /*late_ranks*/) const {
  if (peer != kAnyRank) {
    if (!has_departed(peer)) {
      return std::nullopt;
    }
    return Error(ErrorCode::kPeerLost, group().events.describe_departed(peer));
  }
  const collective::Topology& topology = group().topology;
  if (topology.world_size() == 1) {
    return std::nullopt;  // This rank may send to itself.
  }
  std::vector<std::string> others;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    if (rank != topology.rank()) {
      if (!has_departed(rank)) {
        return std::nullopt;
      }
      others.push_back(group().describe(rank));
    }
  }
  const auto shown = std::span(others).first(std::min(others.size(), kMostRanks));
  return Error(ErrorCode::kPeerLost,
               fmt::format("all other ranks left the group: {}{}",
                           fmt::join(shown, ", "),
                           shown.size() < others.size() ? ", ..." : ""));
}

// A rank that waits for a particular peer has a connection that reports the end of the peer. A rank
// that waits for any rank may have no connection to the ranks that have ended.
void MessageOperation::look_into(std::span<const int> /*late_ranks*/) const {
  has_waited_long_ = true;
  const collective::Topology& topology = group().topology;
  if (peer != kAnyRank || topology.world_size() == 1) {
    return;
  }
  std::vector<int> gone;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    const bool is_other = rank != topology.rank() && !has_departed(rank);
    if (is_other && !waiting_.matcher.is_unreachable(rank)) {
      were_all_gone_ = false;
      return;
    }
    if (is_other) {
      gone.push_back(rank);
    }
  }
  if (std::exchange(were_all_gone_, true)) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("all ranks that could send are gone: no process listens any more for {}",
                    group().events.describe_late(gone)));
  }
}

void MessageOperation::show(Deadline::Clock::time_point since,
                            std::span<const int> late_ranks) const {
  const std::span<const int> late = peer == kAnyRank ? std::span<const int>() : late_ranks;
  group().events.show_wait(
      id, {.since = since, .seen = {}, .operation = text(), .late = {late.begin(), late.end()}});
}

void MessageOperation::stalled(std::chrono::milliseconds waited,
                               std::span<const int> /*late_ranks*/) const {
  const bool is_from_any = peer == kAnyRank;
  group().events.report_stall(text(),
                              waited,
                              describe_late() + describe_unexpected(),
                              std::span(&peer, is_from_any ? 0 : 1));
  if (is_unanswered_receive()) {
    group().events.search_deadlock(id);
  }
}

std::string describe_long_waits(std::span<MessageOperation* const> operations,
                                transport::JobRanks job_ranks) {
  std::vector<std::string> calls;
  std::vector<std::string> begun;
  for (const MessageOperation* const operation : operations) {
    if (operation->has_waited_long()) {
      (operation->is_attended ? calls : begun).push_back(describe(*operation, job_ranks));
    }
  }
  if (begun.empty()) {
    return calls.empty() ? "" : fmt::format("waits in {}", list(calls));
  }
  const std::string in_call = calls.empty() ? "" : fmt::format("waits in {}, and ", list(calls));
  return fmt::format("{}has {} under way", in_call, list(begun));
}

}  // namespace unisono::engine
