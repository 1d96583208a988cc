#include "unisono/comm/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>

#include "unisono/base/process.h"
#include "unisono/base/text.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/init.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/peers/node_peers.h"
#include "unisono/transport/failure.h"

namespace unisono::comm {
namespace {

std::string describe_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 2) {
    return fmt::format("ranks {} and {}", ranks[0], ranks[1]);
  }
  return fmt::format("{} ranks, {} and {} among them,", ranks.size(), ranks[0], ranks[1]);
}

}  // namespace

std::string describe_shared_core(const transport::RankTable& roster,
                                 const std::function<std::vector<int>(pid_t)>& cores_of) {
  std::map<int, std::vector<int>> ranks_of_core;
  std::set<std::int64_t> processes;
  for (const transport::Member& member : roster.members) {
    // Ranks that are threads of a process share cores on purpose.
    if (member.node != roster.self().node || !processes.insert(member.pid).second) {
      continue;
    }
    const std::vector<int> cores = cores_of(static_cast<pid_t>(member.pid));
    if (cores.size() == 1) {
      ranks_of_core[cores.front()].push_back(member.job_rank);
    }
  }
  std::string text;
  for (const auto& [core, ranks] : ranks_of_core) {
    if (ranks.size() > 1) {
      text += fmt::format(
          "{}{} may use core {} only", text.empty() ? "" : "; ", describe_ranks(ranks), core);
    }
  }
  return text;
}

void warn_of_shared_core(const transport::RankTable& roster, const base::Logger& logger) {
  if (collective::Topology(roster.rank, roster.nodes()).local_rank() != 0 ||
      ::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    return;
  }
  const std::string ranks = describe_shared_core(roster, unisono::cores_of);
  if (!ranks.empty()) {
    logger.warning(
        fmt::format("on {} {}, and take turns there: start them with cores of their own, or bound "
                    "to nothing (mpirun --bind-to none, srun --cpu-bind=none)",
                    roster.self().host,
                    ranks));
  }
}

namespace {

// Abstract Unix sockets share a namespace; the random part avoids collisions.
std::string random_endpoint_name() {
  return fmt::format("unisono-{}-{}", ::getpid(), random_hex(8));
}

std::vector<int> node_ranks_of(const transport::RankTable& roster) {
  const collective::Topology topology(roster.rank, roster.nodes());
  return {topology.local_ranks().begin(), topology.local_ranks().end()};
}

// Time for waiting ranks to read the store, which each does once a second.
constexpr std::chrono::seconds kLeaveTimeout{2};

}  // namespace

Job::Job(const JobOptions& options)
    : timeout_(options.timeout),
      config_(options.config),
      session_(connect_store(options)),
      endpoint_(random_endpoint_name()),
      node_listener_(net::listen_unix_abstract(endpoint_)),
      node_post_(net::bind_unix_datagram(peers::post_name(endpoint_))),
      data_listener_(
          prepare(options,
                  session_,
                  [&] { return rendezvous::listen_for_data(options.config, session_); })),
      engines_(prepare(options, session_, [&] { return engine::NativeEngines(options.config); })),
      joined_(join(options,
                   session_,
                   describe_self(options, endpoint_, net::local_address(data_listener_.get())),
                   logger())),
      numbers_(joined_.ranks.rank, joined_.ranks.world_size()),
      long_waits_(peers::LongWaits::open(options.wait_file, logger())),
      node_memory_(meet_node(joined_.ranks, session_, engines_, node_listener_, options.deadline)),
      node_ranks_(node_ranks_of(joined_.ranks)),
      watcher_(std::make_unique<peers::PeerMonitor>(peers::PeerMonitorParts{
          .roster = joined_.ranks,
          .secret = session_.secret,
          .store_fd = session_.store_fd,
          .data_listener = data_listener_.get(),
          .contact = {.post = std::move(node_post_), .key = node_memory_.key()},
          .memory = node_memory_,
          .groups = groups_,
          .logger = logger()})),
      cycles_(std::make_unique<peers::DeadlockDetector>(
          joined_.ranks, watcher_->control(), groups_, logger())) {
  warn_of_shared_core(joined_.ranks, logger());
}

std::shared_ptr<engine::Engine> Job::make_engine(
    const transport::RankTable& roster, std::shared_ptr<engine::SupervisingEngine> native) const {
  if (joined_.backend.make == nullptr) {
    return native;
  }
  std::shared_ptr<engine::Engine> made = joined_.backend.make(roster, std::move(native));
  if (made == nullptr) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "rank {}: backend {} made no engine", roster.self().job_rank, joined_.backend.name));
  }
  return made;
}

base::Logger Job::logger() const {
  return base::Logger(fmt::format("rank {}", session_.launch_info.rank), config_.log_level);
}

std::string Job::store_prefix(std::uint32_t group) const {
  return comm::store_prefix(joined_.ranks.job, group);
}

std::shared_ptr<GroupState> Job::make_world() {
  // The first memory in every rank's arena, never released.
  const int n_local = collective::Topology(joined_.ranks.rank, roster().nodes()).local_world_size();
  UNISONO_CHECK(engines_.reserve_group(n_local) == 0,
                "the world's board is not at the begin of the arena");
  try {
    return make_group({.number = 0,
                       .roster = joined_.ranks,
                       .timeout = timeout_,
                       .offsets = std::vector<std::int64_t>(static_cast<std::size_t>(n_local))});
  } catch (const Error& error) {
    publish_failed_start(joined_.ranks, session_, error);
    rendezvous::leave_after_failure(session_, kTimeToRead);
    throw;
  }
}

std::shared_ptr<GroupState> Job::make_group(GroupSetup setup) {
  const std::uint32_t number = setup.number;
  std::shared_ptr<GroupState> state;
  try {
    state = std::make_shared<GroupState>(*this, std::move(setup));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    // The system lacks resources for a group; the error names the group.
    throw Error(
        error.code(),
        fmt::format("rank {} can't make {}: {}",
                    joined_.ranks.rank,
                    number == 0 ? "the group of all ranks" : "group " + numbers_.name(number),
                    error.what()));
  }
  {
    const MutexLock lock(mutex_);
    ++n_groups_;
  }
  groups_.add(number, state);
  return state;
}

std::optional<transport::Stall> Job::find_wait_of(std::uint64_t thread) {
  std::optional<transport::Stall> wait;
  if (const std::optional<transport::WaitId> work = blocked_threads_->find(thread)) {
    const std::shared_ptr<peers::MonitoredGroup> group = groups_.find(work->group);
    wait = group == nullptr ? std::nullopt : group->find_wait(*work);
  } else {
    groups_.notify_present([&](const peers::MonitoredGroup& group) {
      wait = wait ? wait : group.find_wait_of(thread);
    });
  }
  return wait && blocked_threads_->has_callback_besides(wait->id) ? std::nullopt : wait;
}

bool Job::is_news(const Error& failure) {
  const MutexLock lock(mutex_);
  return known_failures_.emplace(failure.code(), std::string(transport::root_rank(failure.what())))
      .second;
}

bool Job::has_left(int rank) const {
  const auto found = std::ranges::lower_bound(node_ranks_, rank);
  return found != node_ranks_.end() && *found == rank &&
         node_memory_.state(static_cast<std::size_t>(found - node_ranks_.begin())) ==
             shm::SeatState::kLeft;
}

void Job::end_group(std::uint32_t number, transport::ConnectedPeers met, GroupEnd end) noexcept {
  groups_.end(number, std::move(met), end.failure);
  bool is_last = false;
  {
    const MutexLock lock(mutex_);
    end_.failure = end_.failure ? end_.failure : std::move(end.failure);
    end_.has_all = end_.has_all && end.has_all;
    end = end_;
    is_last = --n_groups_ == 0;
  }
  if (is_last) {
    leave(end);
  }
}

void Job::leave(const GroupEnd& end) noexcept {
  cycles_.reset();
  watcher_->stop();  // A group may use control() until its last event has ended.
  watcher_.reset();
  if (!end.failure) {
    // After a failure, ranks that have not received the reason must find that this rank is gone.
    node_memory_.leave(static_cast<std::size_t>(
        collective::Topology(joined_.ranks.rank, roster().nodes()).local_rank()));
  }
  node_listener_.reset();
  // The caller may keep the group for a long time, and a later group may need the port.
  session_.store.reset();
  if (session_.host != nullptr && (end.failure || !end.has_all)) {
    session_.host->wait_until_left(Deadline::after(kLeaveTimeout));
  }
  session_.host.reset();
  data_listener_.reset();
  if (long_waits_ != nullptr) {
    long_waits_->close();
  }
}

}  // namespace unisono::comm
