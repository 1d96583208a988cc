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
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/links.h"
#include "unisono/comm/long_waits.h"
#include "unisono/comm/shared_core.h"
#include "unisono/comm/stack_dump.h"
#include "unisono/comm/watcher.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/lent_engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/data_listener.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/frame.h"

namespace unisono::comm {
namespace {

std::string random_endpoint_name() {
  std::random_device random;
  return fmt::format("unisono-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

std::shared_ptr<engine::SymmetricMemory> make_memory(const Config& config) {
  const std::int64_t n_bytes =
      config.arena_bytes > 0 ? config.arena_bytes : shm::default_arena_bytes();
  return std::make_shared<engine::SymmetricMemory>(
      std::make_shared<const shm::Arena>(shm::Arena::create(n_bytes)));
}

// For ranks that wait and look into the store: each does once a second.
constexpr std::chrono::seconds kLeaveTimeout{2};

int local_world_size(const rendezvous::Roster& roster) {
  return static_cast<int>(std::count_if(
      roster.members.begin(), roster.members.end(), [&](const rendezvous::Member& member) {
        return member.node == roster.self().node;
      }));
}

}  // namespace

Job::Job(const JobOptions& options)
    : timeout_(options.timeout),
      stall_(options.config.stall),
      single_copy_(options.config.single_copy),
      links_(options.config.links),
      checks_buffers_(options.config.checks_buffers),
      log_level_(options.config.log_level),
      backend_(options.backend),
      session_(connect_store(options)),
      endpoint_(random_endpoint_name()),
      node_listener_(net::listen_unix_abstract(endpoint_)),
      data_listener_(
          prepare(options,
                  session_,
                  [&] { return rendezvous::listen_for_data(options.config, session_); })),
      memory_(prepare(options, session_, [&] { return make_memory(options.config); })),
      roster_(exchange_roster(
          options,
          session_,
          describe_self(options, endpoint_, net::local_address(data_listener_.get())))),
      peers_(meet_node(roster_, session_, memory_->arena(), node_listener_, options.deadline)),
      numbers_(roster_.rank, roster_.world_size()),
      long_waits_(LongWaits::open(options.wait_file, logger())),
      cycles_(roster_, session_.secret, groups_, logger()),
      stacks_(std::make_unique<StackDump>(logger())),
      watcher_(std::make_unique<Watcher>(WatcherParts{.roster = roster_,
                                                      .session = session_,
                                                      .data_listener = data_listener_.get(),
                                                      .peers = peers_,
                                                      .groups = groups_,
                                                      .stacks = *stacks_,
                                                      .logger = logger()})) {
  node_listener_.reset();
  warn_of_shared_core(roster_, logger());
}

std::unique_ptr<engine::Engine> Job::make_own_engine(const rendezvous::Roster& roster,
                                                     engine::Engine& native) const {
  if (backend_.make == nullptr) {
    return nullptr;
  }
  std::unique_ptr<engine::Engine> made =
      backend_.make(roster, std::make_unique<engine::LentEngine>(native));
  if (made == nullptr) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {}: backend {} made no engine", roster.self().rank, backend_.name));
  }
  return made;
}

Logger Job::logger() const {
  return Logger(fmt::format("rank {}", session_.launch_info.rank), log_level_);
}

std::shared_ptr<const shm::Arena> Job::arena_of(int job_rank) const {
  if (job_rank == roster_.rank) {
    return memory_->arena();
  }
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const shm::NodePeer& candidate) {
    return candidate.rank == job_rank;
  });
  UNISONO_CHECK(peer != peers_.end(), "a rank of another node has no arena here");
  return peer->arena;
}

std::string Job::store_prefix(std::uint32_t group) const {
  return comm::store_prefix(roster_.job, group);
}

std::shared_ptr<Links> Job::make_world() {
  // The first thing in every rank's arena, never given back.
  const int n_local = local_world_size(roster_);
  UNISONO_CHECK(reserve_board(n_local) == 0, "the world's board is not at the begin of the arena");
  try {
    return make_group({.number = 0,
                       .roster = roster_,
                       .timeout = timeout_,
                       .offsets = std::vector<std::int64_t>(static_cast<std::size_t>(n_local))});
  } catch (const Error& error) {
    publish_failed_start(roster_, session_, error);
    leave_failed_start(session_);
    throw;
  }
}

// Where the system has nothing left for a group, says which it was.
std::shared_ptr<Links> Job::make_links(GroupSetup setup) {
  const std::uint32_t number = setup.number;
  try {
    return std::make_shared<Links>(*this, std::move(setup));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    throw Error(
        error.code(),
        fmt::format("rank {} can't make {}: {}",
                    roster_.rank,
                    number == 0 ? "the group of all ranks" : "group " + numbers_.name(number),
                    error.what()));
  }
}

std::shared_ptr<Links> Job::make_group(GroupSetup setup) {
  const std::uint32_t number = setup.number;
  const std::shared_ptr<Links> links = make_links(std::move(setup));
  {
    const MutexLock lock(mutex_);
    ++n_groups_;
  }
  groups_.add(number, links);
  return links;
}

void Job::tell_peers(const rendezvous::Roster& members,
                     const std::function<std::vector<std::byte>()>& encode_frame) const noexcept {
  try {
    const std::vector<std::byte> frame = encode_frame();
    for (const shm::NodePeer& peer : peers_) {
      const bool is_member = std::any_of(
          members.members.begin(), members.members.end(), [&](const rendezvous::Member& member) {
            return member.rank == peer.rank;
          });
      if (is_member) {
        // A peer that can't take it has hundreds of such frames before it, or is gone.
        (void)net::write_some(peer.socket.get(), frame);
      }
    }
  } catch (const std::exception&) {
    // Out of memory while giving up: the closed sockets have to say it.
    return;
  }
}

void Job::ask_for_stacks(int job_rank) const noexcept {
  try {
    for (const shm::NodePeer& peer : peers_) {
      if (peer.rank == job_rank) {
        (void)net::write_some(peer.socket.get(), tcp::encode_ask());
      }
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say: the report goes without.
  }
}

std::optional<RankWait> Job::find_wait_of(std::uint64_t thread) {
  std::optional<RankWait> wait;
  if (const std::optional<WaitId> work = work_waits_->find(thread)) {
    const std::shared_ptr<Links> links = groups_.find(work->group);
    wait = links == nullptr ? std::nullopt : links->find_wait(*work);
  } else {
    groups_.notify_present(
        [&](const Links& links) { wait = wait ? wait : links.find_wait_of(thread); });
  }
  return wait && work_waits_->has_callback_besides(wait->id) ? std::nullopt : wait;
}

bool Job::is_news(const Error& failure) {
  const MutexLock lock(mutex_);
  return known_failures_.emplace(failure.code(), std::string(transport::root_rank(failure.what())))
      .second;
}

std::int64_t Job::reserve_board(int local_world_size) {
  const MutexLock lock(mutex_);
  free_boards();
  return memory_->reserve(engine::GroupTransports::n_arena_bytes(local_world_size));
}

void Job::retire_control_block(RetiredControlBlock control_block) noexcept {
  const MutexLock lock(mutex_);
  retired_.push_back(control_block);
  free_boards();
}

void Job::free_boards() {
  std::erase_if(retired_, [this](const RetiredControlBlock& control_block) {
    const bool have_all_left = engine::GroupTransports::have_all_left(
        {.arena = memory_->arena(), .offset_bytes = control_block.offset},
        control_block.local_world_size);
    if (have_all_left) {
      memory_->release(control_block.offset);
    }
    return have_all_left;
  });
}

void Job::end_group(std::uint32_t number, MetRanks met, bool may_be_asked) noexcept {
  groups_.end(number, std::move(met));
  bool is_last = false;
  {
    const MutexLock lock(mutex_);
    may_be_asked_ = may_be_asked_ || may_be_asked;
    may_be_asked = may_be_asked_;
    is_last = --n_groups_ == 0;
  }
  if (is_last) {
    leave(may_be_asked);
  }
}

void Job::leave(bool may_be_asked) noexcept {
  cycles_.finish();
  watcher_.reset();
  // The caller may hold the group for long, and a next one may need the port.
  session_.store.reset();
  if (session_.host != nullptr && may_be_asked) {
    session_.host->wait_until_left(Deadline::after(kLeaveTimeout));
  }
  session_.host.reset();
  data_listener_.reset();
  if (long_waits_ != nullptr) {
    long_waits_->close();
  }
  for (shm::NodePeer& peer : peers_) {
    peer.socket.reset();
  }
}

}  // namespace unisono::comm
