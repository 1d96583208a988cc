#include "unisono/health/stored_call_history.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/health/call_history.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/store/store.h"

namespace unisono::health {

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

}  // namespace unisono::health
