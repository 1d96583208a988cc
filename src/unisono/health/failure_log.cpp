#include "unisono/health/failure_log.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/store/store.h"
#include "unisono/transport/relayed_error.h"

namespace unisono::health {
namespace {

std::string encode(int rank, const Error& error) {
  return fmt::format("{}\t{}\t{}", rank, static_cast<int>(error.code()), error.what());
}

// What stands before the next tab, which goes with it; nothing if that is no number.
std::optional<int> take_number(std::string_view& line) {
  const std::string digits(line.substr(0, line.find('\t')));
  int number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, problem] = std::from_chars(digits.data(), end, number);
  if (problem != std::errc() || rest != end || number < 0 || digits.size() == line.size()) {
    return std::nullopt;
  }
  line.remove_prefix(digits.size() + 1);
  return number;
}

// Nothing if no rank can have written it.
std::optional<Reason> decode(std::string_view line) {
  const std::optional<int> rank = take_number(line);
  const std::optional<int> code = rank ? take_number(line) : std::nullopt;
  if (!code || *code > static_cast<int>(ErrorCode::kInternal)) {
    return std::nullopt;
  }
  return Reason{.rank = *rank, .error = {static_cast<ErrorCode>(*code), std::string(line)}};
}

// Nothing where it does not come in time.
std::optional<std::string> get_by(store::Store& store, const std::string& key, Deadline deadline) {
  try {
    return store.get(key, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) {
      throw;
    }
    return std::nullopt;
  }
}

}  // namespace

FailureLog::FailureLog(DiagnosticsStore& store, const std::string& prefix, int rank)
    : store_(store), key_(prefix + "/failures"), rank_(rank) {}

bool FailureLog::publish(const Error& error, bool will_read) noexcept {
  return store_.use([&](store::Store& store) {
    if (!will_read) {
      note_read(store);
    }
    const std::int64_t number = store.add(key_ + "/n", 1);
    store.set(key_of(number), encode(rank_, error));
  });
}

// Waits at the store, which pushes a reason as soon as it is written: whoever wrote it may serve
// the store, and end. Who says no more than is known shows that it is all.
std::string FailureLog::read_others(const std::string& known, Deadline deadline) noexcept {
  std::string reasons;
  store_.use([&](store::Store& store) {
    bool has_heard = false;
    for (std::int64_t number = 1;; ++number) {
      // Those that are there already come with the first.
      const std::optional<std::string> line =
          has_heard ? store.try_get(key_of(number)) : get_by(store, key_of(number), deadline);
      if (!line) {
        break;
      }
      const std::optional<Reason> other = decode(*line);
      if (!other || other->rank == rank_) {
        continue;
      }
      has_heard = true;
      const std::string reason(transport::root_cause(other->error.what()));
      if (known.find(reason) == std::string::npos && reasons.find(reason) == std::string::npos) {
        reasons += (reasons.empty() ? "" : "; ") + reason;
      }
    }
    note_read(store);
  });
  return reasons;
}

std::optional<Reason> FailureLog::find_first() const noexcept {
  std::optional<Reason> first;
  store_.use([&](store::Store& store) {
    for (std::int64_t number = 1; !first; ++number) {
      const std::optional<std::string> line = store.try_get(key_of(number));
      if (!line) {
        return;
      }
      std::optional<Reason> reason = decode(*line);
      if (reason && reason->rank != rank_) {
        first = std::move(reason);
      }
    }
  });
  return first;
}

void FailureLog::wait_for_readers(std::chrono::milliseconds patience) noexcept {
  const Deadline deadline = Deadline::after(patience);
  store_.use([&](store::Store& store) {
    for (std::int64_t number = 1; !deadline.has_passed(); ++number) {
      const std::optional<std::string> line = store.try_get(key_of(number));
      if (!line) {
        return;
      }
      const std::string rank = line->substr(0, line->find('\t'));
      if (rank != std::to_string(rank_)) {
        (void)get_by(store, read_key_of(rank), deadline);
      }
    }
  });
}

void FailureLog::note_read(store::Store& store) const {
  store.set(read_key_of(std::to_string(rank_)), "");
}

std::string FailureLog::read_key_of(const std::string& rank) const {
  return fmt::format("{}/read/{}", key_, rank);
}

std::string FailureLog::key_of(std::int64_t number) const {
  return fmt::format("{}/{}", key_, number);
}

}  // namespace unisono::health
