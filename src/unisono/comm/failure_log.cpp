#include "unisono/comm/failure_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/comm/side_store.h"
#include "unisono/store/store.h"
#include "unisono/transport/relayed_error.h"

namespace unisono::comm {
namespace {

// Behind the rank: what it says itself, or whom it quotes.
std::string reason_in(const std::string& line) {
  return std::string(transport::root_cause(
      std::string_view(line).substr(std::min(line.find('\t') + 1, line.size()))));
}

}  // namespace

FailureLog::FailureLog(SideStore& store, const std::string& prefix, int rank)
    : store_(store), key_(prefix + "/failures"), rank_(rank) {}

void FailureLog::publish(const Error& error, bool will_read) noexcept {
  const std::shared_ptr<store::Store> store = store_.try_open();
  if (store == nullptr) {
    return;  // Then the ends of the connections have to say it.
  }
  try {
    if (!will_read) {
      note_read(*store);
    }
    const std::int64_t number = store->add(key_ + "/n", 1);
    store->set(key_of(number), fmt::format("{}\t{}", rank_, error.what()));
  } catch (const std::exception&) {
    store_.give_up();
  }
}

// Waits at the store, which pushes a reason as soon as it is written: whoever wrote it may serve
// the store, and end.
std::string FailureLog::read_others(const std::string& known, Deadline deadline) noexcept {
  std::string reasons = read(known, deadline);
  const std::shared_ptr<store::Store> store = store_.try_open();
  if (store != nullptr) {
    try {
      note_read(*store);
    } catch (const std::exception&) {
      store_.give_up();
    }
  }
  return reasons;
}

std::string FailureLog::look() const noexcept {
  return read("", std::nullopt);
}

std::string FailureLog::read(const std::string& known,
                             std::optional<Deadline> deadline) const noexcept {
  const std::shared_ptr<store::Store> store = store_.try_open();
  const std::string own_prefix = fmt::format("{}\t", rank_);
  std::string reasons;
  bool has_heard = false;
  try {
    for (std::int64_t number = 1; store != nullptr; ++number) {
      // Those that are there already come with the first.
      const std::optional<std::string> line = deadline && !has_heard
                                                  ? store->get(key_of(number), *deadline)
                                                  : store->try_get(key_of(number));
      if (!line) {
        break;
      }
      if (line->starts_with(own_prefix)) {
        continue;
      }
      has_heard = true;
      const std::string reason = reason_in(*line);
      if (known.find(reason) == std::string::npos && reasons.find(reason) == std::string::npos) {
        reasons += (reasons.empty() ? "" : "; ") + reason;
      }
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) {
      store_.give_up();
    }
  } catch (const std::exception&) {
    store_.give_up();
  }
  return reasons;
}

void FailureLog::wait_for_readers(std::chrono::milliseconds patience) noexcept {
  const std::shared_ptr<store::Store> store = store_.try_open();
  if (store == nullptr) {
    return;
  }
  const Deadline deadline = Deadline::after(patience);
  try {
    for (std::int64_t number = 1;; ++number) {
      const std::optional<std::string> line = store->try_get(key_of(number));
      if (!line) {
        return;
      }
      const std::string rank = line->substr(0, line->find('\t'));
      if (rank != std::to_string(rank_)) {
        (void)store->get(read_key_of(rank), deadline);
      }
    }
  } catch (const std::exception&) {
    return;
  }
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

}  // namespace unisono::comm
