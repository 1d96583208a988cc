#include "unisono/health/diagnostics_store.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
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
