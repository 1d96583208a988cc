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
#include "unisono/comm/stack_show.h"
#include "unisono/comm/watcher.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/symmetric_memory.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/connect_to_store.h"
#include "unisono/rendezvous/data_listener.h"
#include "unisono/rendezvous/exchange_roster.h"
#include "unisono/rendezvous/meet.h"
#include "unisono/rendezvous/node_id.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/asymmetric_fence.h"
#include "unisono/transport/shm/board.h"
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

rendezvous::Member describe_self(const JobOptions& options,
                                 const std::string& endpoint,
                                 const net::Address& data_address) {
  return {.rank = options.assignment.rank,
          .world_size = options.assignment.world_size,
          .host = rendezvous::host_name(),
          .pid = ::getpid(),
          .node = rendezvous::node_id(options.config),
          .address = data_address.ip(),
          .port = data_address.port(),
          .endpoint = endpoint};
}

Logger rank_logger(const JobOptions& options) {
  return Logger(fmt::format("rank {}", options.assignment.rank), options.config.log_level);
}

// For ranks of other nodes that look for the reason of a failure in the store.
constexpr std::chrono::seconds kLeaveTimeout{1};

// Where a process has had a group before, rank 0 may still have been about to end that one's store.
bool was_an_earlier_store(const JobOptions& options, const Error& error) {
  return error.code() == ErrorCode::kPeerLost && options.generation > 0 &&
         options.assignment.rank != 0 && !options.assignment.uses_agent_store &&
         !options.deadline.has_passed();
}

rendezvous::Meeting meet(const JobOptions& options) {
  // Before the store's thread and the watcher's start, which make it slow.
  shm::join_asymmetric_fences_early();
  if (options.store.store != nullptr) {
    return rendezvous::meet_in(options.store, options.config, options.assignment);
  }
  while (true) {
    try {
      return rendezvous::meet(
          options.config, options.assignment, options.deadline, {.generation = options.generation});
    } catch (const Error& error) {
      if (!was_an_earlier_store(options, error)) {
        throw;
      }
    }
  }
}

// What a rank needs before it joins: where it can't have it, the others hear why.
template <class Make>
auto prepare(const JobOptions& options, rendezvous::Meeting& meeting, const Make& make)
    -> decltype(make()) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) {
      rendezvous::fail_roster(*meeting.store,
                              describe_self(options, "", net::Address::loopback(0)),
                              fmt::format("failed: {}", error.what()),
                              {.generation = options.generation});
      rendezvous::leave_after_failure(meeting);
    }
    throw;
  }
}

// Nothing where the program brings a store.
std::string place_of(const rendezvous::Assignment& assignment) {
  return assignment.master_addr.empty() ? "" : rendezvous::describe_place(assignment);
}

rendezvous::Roster exchange_roster(const JobOptions& options,
                                   rendezvous::Meeting& meeting,
                                   const rendezvous::Member& self) {
  while (true) {
    try {
      return rendezvous::exchange_roster(*meeting.store,
                                         self,
                                         options.deadline,
                                         {.generation = options.generation,
                                          .place = place_of(meeting.assignment),
                                          .from_variables = meeting.assignment.from_variables,
                                          .stall = options.config.stall,
                                          .logger = rank_logger(options)});
    } catch (const Error& error) {
      rendezvous::leave_after_failure(meeting);
      if (!was_an_earlier_store(options, error)) {
        const bool is_given = options.store.store != nullptr;
        if (error.code() == ErrorCode::kPeerLost && !is_given && meeting.host == nullptr) {
          throw rendezvous::lost_store(meeting.assignment, error);
        }
        throw;
      }
    }
    meeting = meet(options);
  }
}

std::vector<shm::NodeEndpoint> node_endpoints(const rendezvous::Roster& roster) {
  std::vector<shm::NodeEndpoint> endpoints;
  for (const rendezvous::Member& member : roster.members) {
    if (member.rank != roster.rank && member.node == roster.self().node) {
      endpoints.push_back({.rank = member.rank,
                           .socket = member.endpoint,
                           .name = rendezvous::describe(member),
                           .pid = static_cast<pid_t>(member.pid)});
    }
  }
  return endpoints;
}

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
      meeting_(meet(options)),
      endpoint_(random_endpoint_name()),
      node_listener_(net::listen_unix_abstract(endpoint_)),
      data_listener_(
          prepare(options,
                  meeting_,
                  [&] { return rendezvous::listen_for_data(options.config, meeting_); })),
      memory_(prepare(options, meeting_, [&] { return make_memory(options.config); })),
      roster_(exchange_roster(
          options,
          meeting_,
          describe_self(options, endpoint_, net::local_address(data_listener_.get())))),
      peers_(shm::meet_node(roster_.rank,
                            node_endpoints(roster_),
                            memory_->arena(),
                            node_listener_.get(),
                            roster_.job,
                            meeting_.secret,
                            options.deadline)),
      stacks_(std::make_unique<StackShow>(logger())),
      watcher_(std::make_unique<Watcher>(WatcherParts{.roster = roster_,
                                                      .meeting = meeting_,
                                                      .data_listener = data_listener_.get(),
                                                      .peers = peers_,
                                                      .groups = groups_,
                                                      .stacks = *stacks_,
                                                      .logger = logger()})) {
  node_listener_.reset();
}

std::unique_ptr<engine::Engine> Job::make_engine(const rendezvous::Roster& roster,
                                                 std::unique_ptr<engine::Engine> native) const {
  if (backend_.make == nullptr) {
    return native;
  }
  std::unique_ptr<engine::Engine> made = backend_.make(roster, std::move(native));
  if (made == nullptr) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {}: backend {} made no engine", roster.self().rank, backend_.name));
  }
  return made;
}

Logger Job::logger() const {
  return Logger(fmt::format("rank {}", meeting_.assignment.rank), log_level_);
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
  return fmt::format("unisono/{}/group{}", roster_.job, group);
}

std::shared_ptr<Links> Job::make_world() {
  // The first thing in every rank's arena, never given back.
  const int n_local = local_world_size(roster_);
  UNISONO_CHECK(reserve_board(n_local) == 0, "the world's board is not at the begin of the arena");
  return make_group({.number = 0,
                     .roster = roster_,
                     .timeout = timeout_,
                     .offsets = std::vector<std::int64_t>(static_cast<std::size_t>(n_local))});
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
                    number == 0 ? "the group of all ranks" : fmt::format("group {}", number),
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

bool Job::is_news(const Error& failure) {
  const MutexLock lock(mutex_);
  return known_failures_.emplace(failure.code(), std::string(transport::root_rank(failure.what())))
      .second;
}

std::int64_t Job::reserve_board(int local_world_size) {
  const MutexLock lock(mutex_);
  free_boards();
  return memory_->reserve(Links::n_arena_bytes(local_world_size));
}

void Job::retire_board(RetiredBoard board) noexcept {
  const MutexLock lock(mutex_);
  retired_.push_back(board);
  free_boards();
}

void Job::free_boards() {
  std::erase_if(retired_, [this](const RetiredBoard& board) {
    const bool have_all_left =
        shm::Board::have_all_left(*memory_->arena(), board.offset, board.local_world_size);
    if (have_all_left) {
      memory_->release(board.offset);
    }
    return have_all_left;
  });
}

void Job::end_group(std::uint32_t number, std::set<int> met, bool has_others) noexcept {
  groups_.end(number, std::move(met));
  bool is_last = false;
  {
    const MutexLock lock(mutex_);
    is_last = --n_groups_ == 0;
  }
  if (is_last) {
    leave(has_others);
  }
}

void Job::leave(bool has_others) noexcept {
  watcher_.reset();
  // The caller may hold the group for long, and a next one may need the port.
  meeting_.store.reset();
  if (meeting_.host != nullptr && has_others) {
    meeting_.host->wait_until_left(Deadline::after(kLeaveTimeout));
  }
  meeting_.host.reset();
  data_listener_.reset();
  for (shm::NodePeer& peer : peers_) {
    peer.socket.reset();
  }
}

}  // namespace unisono::comm
