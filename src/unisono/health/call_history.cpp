#include "unisono/health/call_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_contacts.h"
#include "unisono/store/store.h"

namespace unisono::health {

static_assert(std::is_trivially_copyable_v<CallRecord>, "it travels byte by byte");

CallHistory::CallHistory(DiagnosticsStore& store,
                         const std::string& prefix,
                         const GroupContacts& contacts)
    : store_(store), key_(prefix + "/whereabouts"), contacts_(contacts) {}

std::string CallHistory::key_of(int rank) const {
  return fmt::format("{}/{}", key_, rank);
}

void CallHistory::tell(std::span<const CallRecord> calls) noexcept {
  store_.use([&](store::Store& store) {
    store.set(key_of(contacts_.roster.rank),
              std::string(reinterpret_cast<const char*>(calls.data()), calls.size_bytes()));
  });
}

std::vector<CallRecord> CallHistory::ask(int rank) noexcept {
  std::vector<CallRecord> calls;
  store_.use([&](store::Store& store) {
    const std::string bytes = store.try_get(key_of(rank)).value_or("");
    calls.resize(bytes.size() / sizeof(CallRecord));
    std::copy_n(
        bytes.data(), calls.size() * sizeof(CallRecord), reinterpret_cast<char*>(calls.data()));
  });
  return calls;
}

}  // namespace unisono::health
