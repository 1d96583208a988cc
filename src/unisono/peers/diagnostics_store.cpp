#include "unisono/peers/diagnostics_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/transport/failure.h"

namespace unisono::peers {
namespace {

// Reports about a failure must not delay the failure.
constexpr std::chrono::seconds kRequestTimeout{1};

static_assert(std::is_trivially_copyable_v<transport::CallRecord>, "it travels byte by byte");

// Format: rank, error code and text, as decode() reads them.
std::string encode(const Reason& reason) {
  ByteWriter writer;
  writer.put<std::int32_t>(reason.rank);
  writer.put<std::int32_t>(static_cast<std::int32_t>(reason.error.code()));
  writer.put_string(reason.error.what());
  const std::span<const std::byte> bytes(writer.bytes());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns std::nullopt for bytes that no rank can have written.
std::optional<Reason> decode(const std::string& bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes)));
  const auto rank = reader.get<std::int32_t>();
  const auto code = reader.get<std::int32_t>();
  const std::optional<std::string> text = reader.get_string(bytes.size());
  if (!rank || !code || !text || *rank < 0 || *code < 0 ||
      *code > static_cast<std::int32_t>(ErrorCode::kInternal)) {
    return std::nullopt;
  }
  return Reason{.rank = *rank, .error = {static_cast<ErrorCode>(*code), *text}};
}

// Returns std::nullopt if the value does not exist before the deadline.
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

DiagnosticsStore::DiagnosticsStore(StoreAccess access, std::string prefix, int rank)
    : access_(std::move(access)), prefix_(std::move(prefix)), rank_(rank) {}

std::shared_ptr<store::Store> DiagnosticsStore::try_open() noexcept {
  // Held while connecting: other threads wait for the same connection.
  const MutexLock lock(mutex_);
  if (!std::exchange(has_opened_, true)) {
    try {
      store_ = access_.connect(kRequestTimeout);
    } catch (const std::exception&) {
      store_.reset();
    }
  }
  return store_;
}

template <class Action>
bool DiagnosticsStore::use(const Action& action) noexcept {
  try {
    if (const std::shared_ptr<store::Store> store = try_open()) {
      action(*store);
      return true;
    }
  } catch (const std::exception&) {
    give_up();
  }
  return false;
}

void DiagnosticsStore::give_up() noexcept {
  const MutexLock lock(mutex_);
  has_opened_ = true;
  store_.reset();
}

bool DiagnosticsStore::publish(const Error& reason, bool will_read) noexcept {
  return use([&](store::Store& store) {
    if (!will_read) {
      store.set(read_key(rank_), "");
    }
    const std::int64_t number = store.add(prefix_ + "/failures/n", 1);
    store.set(reason_key(number), encode({.rank = rank_, .error = reason}));
  });
}

// Waits at the store, which pushes a reason as soon as it is written, because the writing rank may
// serve the store and end. A reason that `known` already contains ends the wait as well.
std::string DiagnosticsStore::read_others(const std::string& known, Deadline deadline) noexcept {
  std::string reasons;
  use([&](store::Store& store) {
    bool has_heard = false;
    for (std::int64_t number = 1;; ++number) {
      // After the first reason, only reasons that are already in the store are read.
      const std::optional<std::string> bytes = has_heard
                                                   ? store.try_get(reason_key(number))
                                                   : get_by(store, reason_key(number), deadline);
      if (!bytes) {
        break;
      }
      const std::optional<Reason> other = decode(*bytes);
      if (!other || other->rank == rank_) {
        continue;
      }
      has_heard = true;
      const std::string reason(transport::root_cause(other->error.what()));
      if (known.find(reason) == std::string::npos && reasons.find(reason) == std::string::npos) {
        reasons += (reasons.empty() ? "" : "; ") + reason;
      }
    }
    store.set(read_key(rank_), "");
  });
  return reasons;
}

std::optional<Reason> DiagnosticsStore::find_first() noexcept {
  std::optional<Reason> first;
  use([&](store::Store& store) {
    for (std::int64_t number = 1; !first; ++number) {
      const std::optional<std::string> bytes = store.try_get(reason_key(number));
      if (!bytes) {
        return;
      }
      std::optional<Reason> reason = decode(*bytes);
      if (reason && reason->rank != rank_) {
        first = std::move(reason);
      }
    }
  });
  return first;
}

void DiagnosticsStore::wait_for_readers(std::chrono::milliseconds patience) noexcept {
  const Deadline deadline = Deadline::after(patience);
  use([&](store::Store& store) {
    for (std::int64_t number = 1; !deadline.has_passed(); ++number) {
      const std::optional<std::string> bytes = store.try_get(reason_key(number));
      if (!bytes) {
        return;
      }
      const std::optional<Reason> reason = decode(*bytes);
      if (reason && reason->rank != rank_) {
        (void)get_by(store, read_key(reason->rank), deadline);
      }
    }
  });
}

void DiagnosticsStore::tell_calls(std::span<const transport::CallRecord> calls) noexcept {
  use([&](store::Store& store) {
    store.set(calls_key(rank_),
              std::string(reinterpret_cast<const char*>(calls.data()), calls.size_bytes()));
  });
}

std::vector<transport::CallRecord> DiagnosticsStore::ask_calls(int rank) noexcept {
  std::vector<transport::CallRecord> calls;
  use([&](store::Store& store) {
    const std::string bytes = store.try_get(calls_key(rank)).value_or("");
    calls.resize(bytes.size() / sizeof(transport::CallRecord));
    std::copy_n(bytes.data(),
                calls.size() * sizeof(transport::CallRecord),
                reinterpret_cast<char*>(calls.data()));
  });
  return calls;
}

Error DiagnosticsStore::with_lost_host(const Error& error, const transport::RankTable& roster) {
  const std::string host = transport::describe(roster.members.front());
  const bool is_named = std::string_view(error.what()).find(host) != std::string_view::npos;
  if (!access_.is_served_by_rank_0 || is_named || try_open() != nullptr) {
    return error;
  }
  return {
      error.code(),
      fmt::format(
          "{}; {}, which served the job's store, can't be reached any more", error.what(), host)};
}

std::string DiagnosticsStore::reason_key(std::int64_t number) const {
  return fmt::format("{}/failures/{}", prefix_, number);
}

std::string DiagnosticsStore::read_key(int rank) const {
  return fmt::format("{}/failures/read/{}", prefix_, rank);
}

std::string DiagnosticsStore::calls_key(int rank) const {
  return fmt::format("{}/calls/{}", prefix_, rank);
}

}  // namespace unisono::peers
