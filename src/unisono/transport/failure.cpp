#include "unisono/transport/failure.h"

#include <fmt/format.h>

#include <cstddef>

namespace unisono::transport {

bool Failure::set(const Error& error) {
  {
    const MutexLock lock(mutex_);
    if (error_) {
      return false;
    }
    error_ = error;
    is_set_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  wake_();
  return true;
}

Error Failure::error() const {
  const MutexLock lock(mutex_);
  UNISONO_CHECK(error_.has_value(), "a failure is asked for that did not happen");
  return *error_;
}

bool Failure::wait_until_set(Deadline deadline) const {
  const MutexLock lock(mutex_);
  while (!error_ && !deadline.has_passed()) {
    (void)changed_.wait_until(mutex_, deadline.time());
  }
  return error_.has_value();
}

namespace {

constexpr std::string_view kGaveUp = " aborted: ";

// Names of ranks have the form "rank 2 (pid 5 on a)".
constexpr std::string_view kNameBegin = "rank ";

struct Relay {
  std::string_view name;
  std::string_view cause;
};

// Returns the rank name with which `text` ends. Returns an empty view if the text is not a rank
// name, e.g. part of a message of the program.
std::string_view name_at_end(std::string_view text) {
  const std::size_t begin = text.rfind(kNameBegin);
  if (begin == std::string_view::npos) {
    return {};
  }
  const std::string_view name = text.substr(begin);
  const auto has = [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  return name.ends_with(')') && has(" (pid ") && !has(": ") ? name : std::string_view();
}

// Returns the last rank that `text` quotes, and the quoted message. Returns std::nullopt if `text`
// quotes no rank.
std::optional<Relay> last_relay(std::string_view text) {
  std::string_view before = text;
  while (true) {
    const std::size_t end = before.rfind(kGaveUp);
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    before = before.substr(0, end);
    if (const std::string_view name = name_at_end(before); !name.empty()) {
      return Relay{.name = name, .cause = text.substr(end + kGaveUp.size())};
    }
  }
}

}  // namespace

Error relayed(const std::string& name, const Error& reason) {
  const Relay relay = last_relay(reason.what()).value_or(Relay{name, reason.what()});
  return {reason.code(), fmt::format("{}{}{}", relay.name, kGaveUp, relay.cause)};
}

Error with_call(const std::string& prefix, const std::string& call, const Error& error) {
  std::string_view what = error.what();
  if (what.starts_with(prefix + " ")) {
    what.remove_prefix(prefix.size() + 1);
  }
  return {error.code(),
          what.starts_with(call + ":") ? fmt::format("{} {}", prefix, what)
                                       : fmt::format("{} {}: {}", prefix, call, what)};
}

std::string_view root_cause(std::string_view text) {
  return last_relay(text).value_or(Relay{.name = {}, .cause = text}).cause;
}

std::string_view root_rank(std::string_view text) {
  return last_relay(text).value_or(Relay{.name = text, .cause = {}}).name;
}

}  // namespace unisono::transport
