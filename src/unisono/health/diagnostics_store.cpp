#include "unisono/health/diagnostics_store.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/health/call_history.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/store.h"

namespace unisono::health {

std::shared_ptr<store::Store> DiagnosticsStore::try_open() noexcept {
  // Held while connecting: who else needs the store waits for the same connection.
  const MutexLock lock(mutex_);
  if (connect_ != nullptr) {
    try {
      store_ = std::exchange(connect_, nullptr)();
    } catch (const std::exception&) {
      store_.reset();
    }
  }
  return store_;
}

void DiagnosticsStore::give_up() noexcept {
  const MutexLock lock(mutex_);
  connect_ = nullptr;
  store_.reset();
}

static_assert(std::is_trivially_copyable_v<CallRecord>, "it travels byte by byte");

StoredCallHistory::StoredCallHistory(DiagnosticsStore& store,
                                     std::string prefix,
                                     int rank,
                                     Warn warn)
    : store_(store), prefix_(std::move(prefix)), rank_(rank), warn_(std::move(warn)) {}

std::string StoredCallHistory::key_of(int rank) const {
  return fmt::format("{}/whereabouts/{}", prefix_, rank);
}

void StoredCallHistory::tell(std::span<const CallRecord> calls) noexcept {
  const std::shared_ptr<store::Store> store = store_.try_open();
  if (store == nullptr) {
    return;
  }
  try {
    store->set(key_of(rank_),
               std::string(reinterpret_cast<const char*>(calls.data()), calls.size_bytes()));
  } catch (const std::exception&) {
    store_.give_up();
  }
}

std::vector<CallRecord> StoredCallHistory::ask(int rank) noexcept {
  std::vector<CallRecord> calls;
  const std::shared_ptr<store::Store> store = store_.try_open();
  if (store == nullptr) {
    return calls;
  }
  try {
    const std::string bytes = store->try_get(key_of(rank)).value_or("");
    calls.resize(bytes.size() / sizeof(CallRecord));
    if (!calls.empty()) {
      std::memcpy(calls.data(), bytes.data(), calls.size() * sizeof(CallRecord));
    }
  } catch (const std::exception&) {
    store_.give_up();
  }
  return calls;
}

Error with_lost_host(const Error& error,
                     const rendezvous::Roster& roster,
                     const rendezvous::StoreSession& session,
                     DiagnosticsStore& store) {
  // Where the program brings a store, nobody knows who serves it.
  const bool has_rank_0_served = !session.launch_info.master_addr.empty() &&
                                 !session.launch_info.uses_agent_store && session.host == nullptr;
  const std::string host = rendezvous::describe(roster.members.front());
  const bool is_named = std::string_view(error.what()).find(host) != std::string_view::npos;
  if (!has_rank_0_served || is_named || store.try_open() != nullptr) {
    return error;
  }
  return {
      error.code(),
      fmt::format(
          "{}; {}, which served the job's store, can't be reached any more", error.what(), host)};
}

}  // namespace unisono::health
