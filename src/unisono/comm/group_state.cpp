#include "unisono/comm/group_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <set>
#include <string_view>

#include "unisono/base/thread.h"
#include "unisono/comm/job.h"
#include "unisono/engine/native_engines.h"
#include "unisono/rendezvous/connect_store.h"

namespace unisono::comm {
namespace {

// Reports of other ranks about a failure arrive soon after it, or never.
constexpr std::chrono::milliseconds kExplainTimeout{500};

// The time limits of ranks that wait for each other end at about the same time.
constexpr std::chrono::milliseconds kTimeoutsApart{100};

// The monitor is a thread of this process, so its reports arrive soon.
constexpr std::chrono::milliseconds kMonitorTimeout{100};

// The store is asked once for all waits.
constexpr std::chrono::milliseconds kBetweenChecks{500};

// Returns the prefix of this rank's messages: "[rank 5/8]", or "[rank 5/8, 1/2 in group 4.3]".
std::string prefix_of(Job& job, const GroupSetup& setup) {
  const transport::RankTable& world = job.roster();
  const std::string place = setup.number == 0 ? ""
                                              : fmt::format(", {}/{} in group {}",
                                                            setup.roster.rank,
                                                            setup.roster.world_size(),
                                                            job.numbers().name(setup.number));
  return fmt::format("[rank {}/{}{}]", world.rank, world.world_size(), place);
}

// Returns whether `error` is `known` with an operation inserted after the prefix.
bool repeats(const Error& error, const Error& known, const std::string& prefix) {
  std::string_view cause = known.what();
  if (cause.starts_with(prefix)) {
    cause.remove_prefix(prefix.size());
  }
  return std::string_view(error.what()).ends_with(cause);
}

}  // namespace

GroupState::GroupState(Job& job, GroupSetup setup)
    : job_(job),
      setup_(std::move(setup)),
      topology_(setup_.roster.rank, setup_.roster.nodes()),
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
      logger_(job.logger()),
      waits_(job, setup_, ranks_.job_ranks(), failure_),
      diagnostics_store_(
          store_access(job.session()), job.store_prefix(setup_.number), setup_.roster.rank),
      native_(job.engines().make({.number = setup_.number,
                                  .ranks = setup_.roster,
                                  .topology = topology_,
                                  .job_ranks = ranks_.job_ranks(),
                                  .prefix = ranks_.prefix(),
                                  .logger = logger_,
                                  .failure = failure_,
                                  .events = *this},
                                 setup_.offsets)),
      engine_(job.make_engine(setup_.roster, native_)),
      departure_(topology_, ranks_, failure_, status_client_, *native_) {
  waits_.set_engine(*native_);
}

GroupState::~GroupState() = default;

peers::GroupContacts GroupState::contacts() const {
  return {.group = setup_.number, .roster = setup_.roster, .control = job_.control()};
}

void GroupState::report_undelivered(const Error& failure) const noexcept {
  try {
    const std::string text =
        fmt::format("{} leaves a group that has failed: {}", ranks_.prefix(), failure.what());
    if (job_.is_news(failure)) {
      logger_.warning(text);
    } else {
      logger_.debug(text);
    }
  } catch (const std::exception&) {
    return;  // For example out of memory.
  }
}

bool GroupState::has_left(int rank) const {
  // A rank that leaves the job may never have made this group.
  return native_->is_leaving(rank) || job_.has_left(setup_.roster.member(rank).job_rank);
}

transport::RankProgress GroupState::progress_of(int rank) const {
  return native_->progress_of(rank);
}

Error GroupState::with_callers(const Error& error) const {
  if (error.code() != ErrorCode::kMismatch || !waits_.has_several_callers()) {
    return error;
  }
  return {error.code(),
          fmt::format("{}; several threads of rank {} call this group: unless they wait for each "
                      "other, their calls come in another order on each rank; give each thread a "
                      "group of its own (new_group())",
                      error.what(),
                      roster().self().job_rank)};
}

RefusedCall GroupState::refuse(const std::string& call, const std::string& problem) {
  native_->note_refused(waits_.n_calls(), fmt::format("{}: {}", call, problem));
  return {fmt::format("{} {}", ranks_.prefix(), call), problem};
}

void GroupState::fail(const Error& error) noexcept {
  failure_.set(error);
  if (std::exchange(has_reported_, true)) {
    return;
  }
  publish(error, false);
  engine_->abort(error);
  native_->abort_messages(error);
  peers::notify_node(contacts(), error);
  // The rank that failed first reports to the other nodes itself.
  const bool is_own = transport::root_cause(error.what()) == error.what();
  if (topology_.n_nodes() > 1 && is_own && !is_in_store_) {
    peers::notify_other_nodes(contacts(), error);
  }
}

void GroupState::publish(const Error& error, bool will_read) noexcept {
  if (topology_.n_nodes() > 1 && !has_published_.exchange(true)) {
    is_in_store_ = diagnostics_store_.publish(error, will_read);
  }
}

Error GroupState::explain(const Error& error) noexcept {
  if (const std::optional<Error> verdict = waits_.deadlock()) {
    return repeats(error, *verdict, ranks_.prefix()) ? error : *verdict;
  }
  const bool is_timeout = error.code() == ErrorCode::kTimeout;
  const Deadline deadline = Deadline::after(is_timeout ? kTimeoutsApart : kExplainTimeout);
  // A rank of this node that is gone may have failed because of another rank. The monitor receives
  // that rank's reason at the same time.
  const bool has_local_peers = topology_.local_world_size() > 1;
  if (error.code() == ErrorCode::kPeerLost && has_local_peers &&
      failure_.wait_until_set(Deadline::after(kMonitorTimeout))) {
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
    return {error.code(), fmt::format("{}; other ranks report: {}", error.what(), others)};
  }
  // Without the store, ranks that detected the cause report it to a rank of each node.
  if (error.code() == ErrorCode::kPeerLost && failure_.wait_until_set(deadline)) {
    return known_cause_of(error);
  }
  return diagnostics_store_.with_lost_host(error, job_.roster());
}

Error GroupState::with_prefix(const Error& error) const {
  return {error.code(), fmt::format("{} {}", ranks_.prefix(), error.what())};
}

// Returns the error, or the failure that other ranks have reported if that has more information.
Error GroupState::known_cause_of(const Error& error) const {
  const Error known = failure_.error();
  return repeats(error, known, ranks_.prefix()) ? error : known;
}

void GroupState::check_peers() noexcept {
  if (topology_.n_nodes() == 1 || failure_.is_set()) {
    return;
  }
  {
    const MutexLock lock(checking_mutex_);
    if (!next_check_.has_passed()) {
      return;
    }
    next_check_ = Deadline::after(kBetweenChecks);
  }
  (void)has_reported_failure();
}

bool GroupState::has_reported_failure() noexcept {
  if (topology_.n_nodes() > 1 && !failure_.is_set()) {
    const std::optional<peers::Reason> reason = diagnostics_store_.find_first();
    if (reason && reason->rank < topology_.world_size()) {
      note_reason(reason->rank, reason->error);
    }
  }
  return failure_.is_set();
}

void GroupState::leave() {
  native_->finish_messages();
  const bool has_failed = failure_.is_set();
  // A deadlock ends a call in each of its groups, and these fail on all of their ranks.
  const bool is_thrown = failure_.is_undelivered() &&
                         failure_.error().code() == ErrorCode::kMismatch && !job_.is_in_circle();
  if (has_failed) {
    const Error error = failure_.error();
    // The exit of a rank deserves no warning if this rank does not need that rank any more.
    if (!has_reported_ && !is_thrown && error.code() != ErrorCode::kPeerLost) {
      report_undelivered(error);
    }
    fail(error);
  }
  end_part(has_failed);
  if (is_thrown) {
    failure_.note_delivered();
    throw Error(failure_.error());
  }
}

void GroupState::end_part(bool has_failed) noexcept {
  engine_->leave();
  native_->leave_messages();
  if (!has_failed) {
    native_->announce_leave();
  }
  transport::ConnectedPeers met = native_->close();
  diagnostics_store_.give_up();
  status_client_.finish();
  native_->leave_memory();
  // After a failure, a late rank may still write to this memory.
  if (setup_.number != 0 && !has_failed) {
    job_.engines().retire_group(setup_.offsets[static_cast<std::size_t>(topology_.local_rank())],
                                topology_.local_world_size());
  }
  const bool has_all = setup_.number != 0 || have_all_started_.load(std::memory_order_relaxed);
  job_.end_group(
      setup_.number,
      std::move(met),
      {.failure = has_failed ? std::optional(failure_.error()) : std::nullopt, .has_all = has_all});
}

void GroupState::note_abort(int job_rank, const Error& reason) {
  const int rank = setup_.rank_of(job_rank);
  if (rank < 0) {
    return;
  }
  const bool is_news = !failure_.is_set();
  note_reason(rank, reason);
  if (is_news && !ranks_.is_on_node(rank)) {
    peers::notify_node(contacts(), failure_.error());
  }
}

void GroupState::note_reason(int rank, const Error& reason) {
  const Error known = transport::relayed(ranks_.describe(rank), reason);
  failure_.set(waits_.deadlock().value_or(with_prefix(known)));
}

// Detects a mismatch only while both ranks are at the same number. A rank that needed no data from
// the other may have ended its part of a mismatched operation, and moved on.
void GroupState::note_rank_progress(int rank, const transport::RankProgress& theirs) {
  departure_.note_finished(topology_.node_of(rank), theirs.n_finished_on_node);
  const std::optional<transport::RankProgress> mine = native_->own_progress();
  if (mine && mine->sequence > 0 && theirs.sequence == mine->sequence &&
      theirs.descriptor != mine->descriptor) {
    const Error error = transport::mismatch({.who = ranks_.describe(rank),
                                             .sequence = theirs.sequence,
                                             .descriptor = theirs.descriptor},
                                            {.who = ranks_.describe(setup_.roster.rank),
                                             .sequence = mine->sequence,
                                             .descriptor = mine->descriptor},
                                            ranks_.job_ranks());
    failure_.set(with_prefix(error));
  }
}

void GroupState::note_end(int job_rank, peers::ControlLink::End how) {
  const int rank = setup_.rank_of(job_rank);
  if (rank < 0) {
    return;
  }
  if (how == peers::ControlLink::End::kJunk) {
    note_failure(rank, ErrorCode::kCorruptData, "sent an invalid frame");
  } else if (!ranks_.has_departed(rank) && !ranks_.has_departed_from_messages(rank)) {
    note_failure(rank,
                 ErrorCode::kPeerLost,
                 "is gone: its process ended without leaving the group (killed, or crashed)");
  }
}

void GroupState::note_failure(int rank, ErrorCode code, const std::string& what) {
  failure_.set(waits_.deadlock().value_or(
      Error(code, fmt::format("{} {} {}", ranks_.prefix(), ranks_.describe(rank), what))));
}

std::string GroupState::describe_activity() const {
  const std::optional<transport::RankProgress> rank_progress = native_->own_progress();
  if (!rank_progress) {
    return "";
  }
  std::string text = rank_progress->waits;
  if (rank_progress->sequence > 0 && !rank_progress->has_finished) {
    text += fmt::format(
        "{}{} {}",
        text.empty() ? "" : ", and ",
        failure_.is_set() ? "aborted in" : "is in",
        transport::describe(
            rank_progress->descriptor, rank_progress->sequence, {}, ranks_.job_ranks()));
  }
  return text.empty() ? "" : fmt::format("{} of {}", text, describe_group(setup_, job_.numbers()));
}

// Does nothing while a thread waits for replies: the monitor thread, which delivers the replies,
// must not block on the lock of the messages.
void GroupState::listen_for_messages() noexcept {
  if (!status_client_.is_hearing()) {
    native_->listen_for_messages();
  }
}

std::optional<Error> GroupState::find_failure() const {
  return failure_.is_set() ? std::optional(failure_.error()) : std::nullopt;
}

std::optional<transport::RankProgress> GroupState::own_progress() const {
  return native_->own_progress();
}

void GroupState::deliver(const net::HelloInfo& peer,
                         Fd socket,
                         const std::optional<Error>& shortage) {
  const int rank = setup_.rank_of(peer.rank);
  if (shortage && rank >= 0) {
    failure_.set({shortage->code(),
                  fmt::format("{} can't keep the connection of {}: {}",
                              ranks_.prefix(),
                              ranks_.describe(rank),
                              shortage->what())});
  }
  if (failure_.is_set()) {
    // The connection arrived after the report of the failure to the other ranks.
    native_->reject(socket.get(), failure_.error());
  } else if (rank >= 0) {
    native_->deliver(rank, peer.purpose, std::move(socket));
  }
}

void GroupState::search_deadlock(const transport::WaitId& wait) {
  job_.cycles().look(wait);
}

std::optional<Deadline::Clock::time_point> GroupState::blocked_since(
    const transport::WaitId& work) const {
  return job_.blocked_threads()->waited_since(work);
}

void GroupState::set_deadlock(const Error& verdict) {
  waits_.set_deadlock(with_prefix(verdict));
}

void GroupState::end_with(const Error& verdict) {
  failure_.set(with_prefix(verdict));
}

}  // namespace unisono::comm
