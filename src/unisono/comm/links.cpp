#include "unisono/comm/links.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/cores.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/comm/abort_notification.h"
#include "unisono/comm/job.h"
#include "unisono/comm/rank_wait.h"
#include "unisono/comm/refused_call.h"
#include "unisono/comm/status_client.h"
#include "unisono/engine/native/native_engine.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"

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

shm::ControlBlock make_control_block(const Job& job,
                                     const collective::Topology& topology,
                                     const GroupSetup& setup) {
  std::vector<shm::ControlBlock::Member> seats;
  for (std::size_t index = 0; index < setup.offsets.size(); ++index) {
    const int rank = topology.local_ranks()[index];
    const int job_rank = setup.roster.members[static_cast<std::size_t>(rank)].rank;
    seats.push_back(
        {.rank = rank, .arena = job.arena_of(job_rank), .offset_bytes = setup.offsets[index]});
  }
  return {seats, topology.local_rank()};
}

constexpr std::int64_t kPage = 4096;

// Where the endpoint begins in a group's part of an arena.
std::int64_t endpoint_offset(int local_world_size) {
  return (shm::ControlBlock::n_bytes(local_world_size) + kPage - 1) / kPage * kPage;
}

shm::Endpoint make_endpoint(const Job& job,
                            const collective::Topology& topology,
                            const GroupSetup& setup) {
  std::vector<shm::EndpointMember> members;
  for (std::size_t index = 0; index < setup.offsets.size(); ++index) {
    const int rank = topology.local_ranks()[index];
    const rendezvous::Member& member = setup.roster.members[static_cast<std::size_t>(rank)];
    members.push_back(
        {.arena = job.arena_of(member.rank),
         .offset_bytes = setup.offsets[index] + endpoint_offset(topology.local_world_size()),
         .pid = static_cast<pid_t>(member.pid),
         .name = rendezvous::describe(member),
         .bell = fmt::format("{}-messages-{}", member.endpoint, setup.number)});
  }
  const bool has_bell_socket = topology.n_nodes() > 1 && topology.local_world_size() > 1;
  return {std::move(members),
          topology.local_rank(),
          has_bell_socket,
          job.single_copy() != SingleCopy::kOff};
}

// How this rank's messages begin: "[rank 5/8]", or "[rank 5/8, 1/2 in group 4.3]".
std::string prefix_of(const Job& job, const GroupSetup& setup) {
  const rendezvous::Roster& world = job.roster();
  const std::string place = setup.number == 0 ? ""
                                              : fmt::format(", {}/{} in group {}",
                                                            setup.roster.rank,
                                                            setup.roster.world_size(),
                                                            job.numbers().name(setup.number));
  return fmt::format("[rank {}/{}{}]", world.rank, world.world_size(), place);
}

std::vector<shm::ProcessMemory> processes_of(const shm::Endpoint& endpoint,
                                             const collective::Topology& topology) {
  std::vector<shm::ProcessMemory> processes;
  for (int peer = 0; peer < topology.local_world_size(); ++peer) {
    processes.push_back(endpoint.process_memory(peer));
  }
  return processes;
}

// Whether `error` is `known`, with the operation behind the prefix.
bool repeats(const Error& error, const Error& known, const std::string& prefix) {
  std::string_view cause = known.what();
  if (cause.starts_with(prefix)) {
    cause.remove_prefix(prefix.size());
  }
  return std::string_view(error.what()).ends_with(cause);
}

bool has_core_for_each_rank_here(const rendezvous::Roster& roster) {
  std::vector<pid_t> processes;
  for (const rendezvous::Member& member : roster.members) {
    if (member.node == roster.self().node) {
      processes.push_back(static_cast<pid_t>(member.pid));
    }
  }
  return has_core_for_each(processes);
}

}  // namespace

std::vector<tcp::MeshMember> mesh_members(const rendezvous::Roster& roster) {
  std::vector<tcp::MeshMember> members;
  for (const rendezvous::Member& member : roster.members) {
    const std::optional<net::Address> address = net::Address::parse(member.address, member.port);
    if (!address) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} gave \"{}\" as its address, which is none",
                              rendezvous::describe(member),
                              member.address));
    }
    members.push_back(
        {.job_rank = member.rank, .address = *address, .name = rendezvous::describe(member)});
  }
  return members;
}

collective::Topology topology_of(const rendezvous::Roster& roster) {
  std::vector<std::string> nodes;
  for (const rendezvous::Member& member : roster.members) {
    nodes.push_back(member.node);
  }
  return {roster.rank, nodes};
}

std::int64_t Links::n_arena_bytes(int local_world_size) {
  return endpoint_offset(local_world_size) + shm::Endpoint::n_bytes(local_world_size);
}

Links::Links(Job& job, GroupSetup setup)
    : job_(job),
      setup_(std::move(setup)),
      topology_(topology_of(setup_.roster)),
      has_cores_(has_core_for_each_rank_here(setup_.roster)),
      control_block_(make_control_block(job, topology_, setup_)),
      mesh_(mesh_members(setup_.roster),
            job.session().secret,
            {.job = setup_.roster.job,
             .purpose = tcp::kDataPurpose,
             .rank = setup_.roster.self().rank,
             .group = setup_.number},
            topology_.n_nodes() > 1),
      endpoint_(make_endpoint(job, topology_, setup_)),
      message_mesh_(mesh_members(setup_.roster),
                    job.session().secret,
                    {.job = setup_.roster.job,
                     .purpose = tcp::kMessagePurpose,
                     .rank = setup_.roster.self().rank,
                     .group = setup_.number},
                    topology_.n_nodes() > 1),
      status_client_(
          mesh_members(setup_.roster),
          [this](int rank) { return topology_.node_of(rank) == topology_.node(); },
          [this](int rank, const transport::Departure& departure) {
            ranks_.note_departure(rank, departure);
            wake();
          },
          [this](int rank, const Error& reason) { note_reason(rank, reason); },
          [this](int rank, const transport::RankProgress& rank_progress) {
            note_rank_progress(rank, rank_progress);
          },
          job.session().secret,
          {.job = setup_.roster.job,
           .purpose = kStatusPurpose,
           .rank = setup_.roster.self().rank,
           .group = setup_.number},
          prefix_of(job, setup_),
          job.logger()),
      ranks_(setup_.roster,
             prefix_of(job, setup_),
             job.logger(),
             {.look =
                  [this](int rank) {
                    return control_block_.rank_progress(topology_.local_rank_of(rank));
                  },
              .ask = [this](int rank) { ask(rank); },
              .hear = [this](std::span<const int> ranks) { return status_client_.hear(ranks); },
              .is_news = [&job](const Error& failure) { return job.is_news(failure); },
              .note_late = [this](std::uint64_t sequence,
                                  std::span<const int> late) { note_late(sequence, late); },
              .look_for_cycle =
                  [this](std::uint64_t sequence) {
                    job_.cycles().look({.group = setup_.number, .sequence = sequence});
                  },
              .show_wait =
                  [this](std::uint64_t sequence, const engine::ShownWait& wait) {
                    show_wait({.group = setup_.number, .sequence = sequence}, wait);
                  },
              .hide_wait =
                  [this](std::uint64_t sequence) {
                    hide_wait({.group = setup_.number, .sequence = sequence});
                  }}),
      diagnostics_store_([&job] { return job.session().connect_again(kDiagnosticsStoreTimeout); }),
      failures_(diagnostics_store_, job.store_prefix(setup_.number), setup_.roster.rank),
      call_history_(diagnostics_store_,
                    job.store_prefix(setup_.number),
                    setup_.roster.rank,
                    [this](int rank, const Error& reason) {
                      send_abort_notification(job_, setup_, rank, reason);
                    }),
      engine_(job.make_engine(setup_.roster,
                              std::make_unique<engine::NativeEngine>(engine::NativeParts{
                                  .group = setup_.number,
                                  .topology = topology_,
                                  .control_block = control_block_,
                                  .mesh = mesh_,
                                  .memory = job.memory(),
                                  .failure = failure_,
                                  .processes = processes_of(endpoint_, topology_),
                                  .has_cores = has_cores_,
                                  .single_copy = job.single_copy(),
                                  .links = job.links(),
                                  .ranks = ranks_,
                                  .call_history = call_history_,
                                  .listen = [this] { listen(); },
                                  .stall = job.stall()}))),
      point_to_point_(std::make_unique<PointToPointProgress>(PointToPointParts{
          .group = setup_.number,
          .topology = topology_,
          .endpoint = endpoint_,
          .mesh = message_mesh_,
          .ranks = ranks_,
          .failure = failure_,
          .stall = job.stall(),
          .has_cores = has_cores_,
          .single_copy = job.single_copy(),
          .checks_buffers = job.checks_buffers(),
          .explain = [this](const Error& error) { return explain(error); },
          .listen = [this] { listen(); },
          .show_waits = [this](const std::string& text) { control_block_.note_waits(text); },
          .look_for_cycle = [this](const WaitId& wait) { job_.cycles().look(wait); },
          .show_wait = [this](const WaitId& id,
                              const engine::ShownWait& wait) { show_wait(id, wait); },
          .hide_wait = [this](const WaitId& id) { hide_wait(id); },
          .work_waits = job.work_waits()})) {
  failure_.on_set([this] { wake(); });
}

void Links::wake() const {
  control_block_.wake();
  mesh_.wake();
  point_to_point_->wake();
}

void Links::ask(int rank) noexcept {
  status_client_.ask(rank);
  const bool is_on_node = topology_.node_of(rank) == topology_.node();
  if (is_on_node && ranks_.logger().is_enabled(LogLevel::kDebug)) {
    job_.ask_for_stacks(setup_.roster.members[static_cast<std::size_t>(rank)].rank);
  }
}

void Links::note_caller() {
  const std::uint64_t thread = this_thread_number();
  callers_.note(thread);
  job_.callers().note(thread);
}

RefusedCall Links::refuse(const std::string& call, const std::string& problem) {
  control_block_.note_refused(n_calls_.load(std::memory_order_relaxed),
                              fmt::format("{}: {}", call, problem));
  return {fmt::format("{} {}", ranks_.prefix(), call), problem};
}

void Links::fail(const Error& error) noexcept {
  failure_.set(error);
  if (std::exchange(has_told_, true)) {
    return;
  }
  publish(error, false);
  engine_->abort(error);
  point_to_point_->abort(error);
  job_.tell_peers(setup_.roster, [&] { return tcp::encode_abort(setup_.number, error); });
  // Who passes on what another said need not tell whom that one tells.
  const bool is_own = transport::root_cause(error.what()) == error.what();
  if (topology_.n_nodes() > 1 && is_own && !is_in_store_) {
    notify_other_nodes(job_, setup_, error);
  }
}

void Links::give_up(const Error& error) noexcept {
  failure_.set(error);
}

void Links::publish(const Error& error, bool will_read) noexcept {
  if (topology_.n_nodes() > 1 && !has_published_.exchange(true)) {
    is_in_store_ = failures_.publish(error, will_read);
  }
}

Error Links::explain(const Error& error) noexcept {
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
  const std::string others = failures_.read_others(error.what(), deadline);
  if (job_.session().host != nullptr) {
    failures_.wait_for_readers(kExplainTimeout);
  }
  if (!others.empty()) {
    return {error.code(), fmt::format("{}; other ranks say: {}", error.what(), others)};
  }
  // Where the store is gone, too, ranks that saw why tell a rank of each node.
  if (error.code() == ErrorCode::kPeerLost && failure_.wait_until_set(deadline)) {
    return known_cause_of(error);
  }
  return with_lost_host(error, job_.roster(), job_.session(), diagnostics_store_);
}

Error Links::known_cause_of(const Error& error) const {
  const Error known = failure_.error();
  return repeats(error, known, ranks_.prefix()) ? error : known;
}

void Links::listen() noexcept {
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

bool Links::has_heard_reason() noexcept {
  if (topology_.n_nodes() > 1 && !failure_.is_set()) {
    const std::optional<Reason> reason = failures_.find_first();
    if (reason && reason->rank < topology_.world_size()) {
      note_reason(reason->rank, reason->error);
    }
  }
  return failure_.is_set();
}

void Links::leave() noexcept {
  point_to_point_->finish();
  const bool has_failed = failure_.is_set();
  if (has_failed) {
    const Error error = failure_.error();
    // Ranks that end without a goodbye are not worth a word to one that needs them no more.
    if (!has_told_ && error.code() != ErrorCode::kPeerLost) {
      ranks_.report_unheard(error);
    }
    fail(error);
  }
  engine_->leave();
  point_to_point_->leave();
  if (!has_failed) {
    job_.tell_peers(setup_.roster, [&] { return tcp::encode_leave(setup_.number); });
  }
  MetRanks met = met_ranks();
  mesh_.close();
  message_mesh_.close();
  diagnostics_store_.give_up();
  status_client_.finish();
  control_block_.leave();
  // Where a rank failed, another may wake up late and still write there.
  if (setup_.number != 0 && !has_failed) {
    job_.retire_control_block(
        {.offset = setup_.offsets[static_cast<std::size_t>(control_block_.local_rank())],
         .local_world_size = control_block_.local_world_size()});
  }
  const bool has_all = setup_.number != 0 || have_all_started_.load(std::memory_order_relaxed);
  job_.end_group(setup_.number, std::move(met), has_failed || !has_all);
}

MetRanks Links::met_ranks() const {
  MetRanks met;
  for (int rank = 0; rank < topology_.world_size(); ++rank) {
    if (mesh_.find(rank) != nullptr) {
      met.by_operations.insert(job_rank_of(rank));
    }
    if (message_mesh_.find(rank) != nullptr) {
      met.by_messages.insert(job_rank_of(rank));
    }
  }
  return met;
}

}  // namespace unisono::comm
