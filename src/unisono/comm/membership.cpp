#include "unisono/comm/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/comm/job.h"
#include "unisono/comm/refused_call.h"
#include "unisono/engine/native_engines.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/status_client.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/relayed_error.h"

namespace unisono::comm {
namespace {

// What another rank has to say of a failure comes soon after it, or not at all.
constexpr std::chrono::milliseconds kExplainTimeout{500};

// Ranks that have waited for each other give up at about the same time.
constexpr std::chrono::milliseconds kTimeoutsApart{100};

// The watcher is a thread of this process.
constexpr std::chrono::milliseconds kWatcherTimeout{100};

// However many waits ask for it.
constexpr std::chrono::milliseconds kBetweenListenings{500};

// How this rank's messages begin: "[rank 5/8]", or "[rank 5/8, 1/2 in group 4.3]".
std::string prefix_of(Job& job, const GroupSetup& setup) {
  const rendezvous::Roster& world = job.roster();
  const std::string place = setup.number == 0 ? ""
                                              : fmt::format(", {}/{} in group {}",
                                                            setup.roster.rank,
                                                            setup.roster.world_size(),
                                                            job.numbers().name(setup.number));
  return fmt::format("[rank {}/{}{}]", world.rank, world.world_size(), place);
}

// Whether `error` is `known`, with the operation behind the prefix.
bool repeats(const Error& error, const Error& known, const std::string& prefix) {
  std::string_view cause = known.what();
  if (cause.starts_with(prefix)) {
    cause.remove_prefix(prefix.size());
  }
  return std::string_view(error.what()).ends_with(cause);
}

}  // namespace

Membership::Membership(Job& job, GroupSetup setup)
    : job_(job),
      setup_(std::move(setup)),
      topology_(health::topology_of(setup_.roster)),
      ranks_(setup_.roster, prefix_of(job, setup_), job.logger(), this),
      status_client_(
          {.contacts = contacts(),
           .groups = job.groups(),
           .ranks = ranks_,
           .note_departure =
               [this](int rank, const transport::Departure& departure) {
                 ranks_.note_departure(rank, departure);
                 wake();
               },
           .note_reason = [this](int rank, const Error& reason) { note_reason(rank, reason); },
           .note_rank_progress =
               [this](int rank, const transport::RankProgress& rank_progress) {
                 note_rank_progress(rank, rank_progress);
               }}),
      failure_([this] { wake(); }),
      diagnostics_store_(job.session(), job.store_prefix(setup_.number), setup_.roster.rank),
      native_(job.engines().make({.group = setup_.number,
                                  .roster = setup_.roster,
                                  .topology = topology_,
                                  .offsets = setup_.offsets,
                                  .failure = failure_,
                                  .ranks = ranks_,
                                  .status = status_client_,
                                  .health = *this,
                                  .work_waits = *job.work_waits(),
                                  .diagnostics = diagnostics_store_})),
      engine_(job.make_engine(setup_.roster, native_)) {}

Membership::~Membership() = default;

health::GroupContacts Membership::contacts() const {
  return {.group = setup_.number, .roster = setup_.roster, .control = job_.control()};
}

void Membership::wake() const {
  native_->wake();
}

std::vector<RankTraffic> Membership::traffic() const {
  return native_->traffic();
}

void Membership::on_failed_messages(std::function<void()> tell) {
  native_->on_failed_messages(std::move(tell));
}

bool Membership::is_news(const Error& failure) {
  return job_.is_news(failure);
}

bool Membership::has_left(int rank) const {
  // A rank that leaves the job may never have made this group.
  return native_->is_leaving(rank) || job_.has_left(job_rank_of(rank));
}

transport::RankProgress Membership::progress_of(int rank) const {
  return native_->progress_of(rank);
}

void Membership::note_caller() {
  const std::uint64_t thread = this_thread_number();
  callers_.note(thread);
  job_.callers().note(thread);
}

Error Membership::with_callers(const Error& error) const {
  if (error.code() != ErrorCode::kMismatch || callers_.has_none() || callers_.thread()) {
    return error;
  }
  return {error.code(),
          fmt::format("{}; several threads of rank {} call this group: unless they wait for each "
                      "other, their calls come in another order on each rank; give each thread a "
                      "group of its own (new_group())",
                      error.what(),
                      roster().self().rank)};
}

RefusedCall Membership::refuse(const std::string& call, const std::string& problem) {
  native_->note_refused(n_calls_.load(std::memory_order_relaxed),
                        fmt::format("{}: {}", call, problem));
  return {fmt::format("{} {}", ranks_.prefix(), call), problem};
}

void Membership::fail(const Error& error) noexcept {
  failure_.set(error);
  if (std::exchange(has_told_, true)) {
    return;
  }
  publish(error, false);
  engine_->abort(error);
  native_->abort_messages(error);
  health::tell_node(contacts(), error);
  // Who passes on what another said need not tell whom that one tells.
  const bool is_own = transport::root_cause(error.what()) == error.what();
  if (topology_.n_nodes() > 1 && is_own && !is_in_store_) {
    health::tell_other_nodes(contacts(), error);
  }
}

void Membership::give_up(const Error& error) noexcept {
  failure_.set(error);
}

void Membership::publish(const Error& error, bool will_read) noexcept {
  if (topology_.n_nodes() > 1 && !has_published_.exchange(true)) {
    is_in_store_ = diagnostics_store_.publish(error, will_read);
  }
}

Error Membership::explain(const Error& error) noexcept {
  if (const std::optional<Error> verdict = find_verdict()) {
    return repeats(error, *verdict, ranks_.prefix()) ? error : *verdict;
  }
  const bool is_timeout = error.code() == ErrorCode::kTimeout;
  const Deadline deadline = Deadline::after(is_timeout ? kTimeoutsApart : kExplainTimeout);
  // Who finds a rank of its node gone may have come upon one that gave up because of another: the
  // watcher hears the reason at the same time.
  const bool has_local_peers = topology_.local_world_size() > 1;
  if (error.code() == ErrorCode::kPeerLost && has_local_peers &&
      failure_.wait_until_set(Deadline::after(kWatcherTimeout))) {
    return known_cause_of(error);
  }
  if (topology_.n_nodes() == 1) {
    return error;
  }
  const bool may_be_anothers = is_timeout || error.code() == ErrorCode::kPeerLost;
  publish(error, may_be_anothers);
  if (!may_be_anothers) {
    return error;
  }
  const std::string others = diagnostics_store_.read_others(error.what(), deadline);
  if (job_.session().host != nullptr) {
    diagnostics_store_.wait_for_readers(kExplainTimeout);
  }
  if (!others.empty()) {
    return {error.code(), fmt::format("{}; other ranks say: {}", error.what(), others)};
  }
  // Where the store is gone, too, ranks that saw why tell a rank of each node.
  if (error.code() == ErrorCode::kPeerLost && failure_.wait_until_set(deadline)) {
    return known_cause_of(error);
  }
  return diagnostics_store_.with_lost_host(error, job_.roster());
}

Error Membership::known_cause_of(const Error& error) const {
  const Error known = failure_.error();
  return repeats(error, known, ranks_.prefix()) ? error : known;
}

void Membership::listen() noexcept {
  if (topology_.n_nodes() == 1 || failure_.is_set()) {
    return;
  }
  {
    const MutexLock lock(listening_mutex_);
    if (!next_listening_.has_passed()) {
      return;
    }
    next_listening_ = Deadline::after(kBetweenListenings);
  }
  (void)has_heard_reason();
}

bool Membership::has_heard_reason() noexcept {
  if (topology_.n_nodes() > 1 && !failure_.is_set()) {
    const std::optional<health::Reason> reason = diagnostics_store_.find_first();
    if (reason && reason->rank < topology_.world_size()) {
      note_reason(reason->rank, reason->error);
    }
  }
  return failure_.is_set();
}

}  // namespace unisono::comm
