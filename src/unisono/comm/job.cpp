#include "unisono/comm/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/random_hex.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/backend_choice.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/shared_core.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native_engines.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/health/cycle_search.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/long_waits.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/node_post.h"
#include "unisono/health/watcher.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::comm {
namespace {

std::string random_endpoint_name() {
  return fmt::format("unisono-{}-{}", ::getpid(), random_hex(8));
}

std::vector<int> node_ranks_of(const rendezvous::Roster& roster) {
  const collective::Topology topology = health::topology_of(roster);
  return {topology.local_ranks().begin(), topology.local_ranks().end()};
}

// For ranks that wait and look into the store: each does once a second.
constexpr std::chrono::seconds kLeaveTimeout{2};

}  // namespace

Job::Job(const JobOptions& options)
    : timeout_(options.timeout),
      config_(options.config),
      session_(connect_store(options)),
      endpoint_(random_endpoint_name()),
      node_listener_(net::listen_unix_abstract(endpoint_)),
      node_post_(net::bind_unix_datagram(health::post_name(endpoint_))),
      data_listener_(
          prepare(options,
                  session_,
                  [&] { return rendezvous::listen_for_data(options.config, session_); })),
      engines_(prepare(options, session_, [&] { return engine::NativeEngines(options.config); })),
      roster_(exchange_roster(
          options,
          session_,
          describe_self(options, endpoint_, net::local_address(data_listener_.get())))),
      backend_(agreed_backend(options.backend.backend, roster_, logger())),
      numbers_(roster_.rank, roster_.world_size()),
      long_waits_(health::LongWaits::open(options.wait_file, logger())),
      node_memory_(meet_node(roster_, session_, engines_, node_listener_, options.deadline)),
      node_ranks_(node_ranks_of(roster_)),
      watcher_(std::make_unique<health::Watcher>(health::WatcherParts{
          .roster = roster_,
          .session = session_,
          .data_listener = data_listener_.get(),
          .contact = {.post = std::move(node_post_), .key = node_memory_.key()},
          .memory = node_memory_,
          .groups = groups_,
          .logger = logger()})),
      cycles_(
          std::make_unique<health::CycleSearch>(roster_, watcher_->control(), groups_, logger())) {
  warn_of_shared_core(roster_, logger());
}

std::shared_ptr<engine::Engine> Job::make_engine(
    const rendezvous::Roster& roster, std::shared_ptr<engine::SupervisingEngine> native) const {
  if (backend_.make == nullptr) {
    return native;
  }
  std::shared_ptr<engine::Engine> made = backend_.make(roster, std::move(native));
  if (made == nullptr) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {}: backend {} made no engine", roster.self().rank, backend_.name));
  }
  return made;
}

Logger Job::logger() const {
  return Logger(fmt::format("rank {}", session_.launch_info.rank), config_.log_level);
}

std::string Job::store_prefix(std::uint32_t group) const {
  return comm::store_prefix(roster_.job, group);
}

std::shared_ptr<Membership> Job::make_world() {
  // The first thing in every rank's arena, never given back.
  const int n_local = health::topology_of(roster_).local_world_size();
  UNISONO_CHECK(engines_.reserve_group(n_local) == 0,
                "the world's board is not at the begin of the arena");
  try {
    return make_group({.number = 0,
                       .roster = roster_,
                       .timeout = timeout_,
                       .offsets = std::vector<std::int64_t>(static_cast<std::size_t>(n_local))});
  } catch (const Error& error) {
    publish_failed_start(roster_, session_, error);
    rendezvous::leave_after_failure(session_, kTimeToRead);
    throw;
  }
}

std::shared_ptr<Membership> Job::make_group(GroupSetup setup) {
  const std::uint32_t number = setup.number;
  std::shared_ptr<Membership> membership;
  try {
    membership = std::make_shared<Membership>(*this, std::move(setup));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    // The system has nothing left for a group: say for which.
    throw Error(
        error.code(),
        fmt::format("rank {} can't make {}: {}",
                    roster_.rank,
                    number == 0 ? "the group of all ranks" : "group " + numbers_.name(number),
                    error.what()));
  }
  {
    const MutexLock lock(mutex_);
    ++n_groups_;
  }
  groups_.add(number, membership);
  return membership;
}

std::optional<health::RankWait> Job::find_wait_of(std::uint64_t thread) {
  std::optional<health::RankWait> wait;
  if (const std::optional<health::WaitId> work = work_waits_->find(thread)) {
    const std::shared_ptr<health::MonitoredGroup> group = groups_.find(work->group);
    wait = group == nullptr ? std::nullopt : group->find_wait(*work);
  } else {
    groups_.notify_present([&](const health::MonitoredGroup& group) {
      wait = wait ? wait : group.find_wait_of(thread);
    });
  }
  return wait && work_waits_->has_callback_besides(wait->id) ? std::nullopt : wait;
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

void Job::end_group(std::uint32_t number, health::MetRanks met, GroupEnd end) noexcept {
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
  watcher_->stop();  // What it just tells a group may be told on.
  watcher_.reset();
  if (!end.failure) {
    // Else who has not been told why sees that this rank is gone.
    node_memory_.leave(static_cast<std::size_t>(health::topology_of(roster_).local_rank()));
  }
  node_listener_.reset();
  // The caller may hold the group for long, and a next one may need the port.
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
