#include "unisono/comm/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/messenger.h"
#include "unisono/engine/native/native_engine.h"
#include "unisono/engine/native/symmetric_memory.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/exchange_roster.h"
#include "unisono/rendezvous/meet.h"
#include "unisono/rendezvous/node_id.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/shm/mailbox.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/message_mesh.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t kBoardOffset = 0;
constexpr auto kBoardBytes = static_cast<std::int64_t>(sizeof(shm::BoardMemory));

std::string random_endpoint_name() {
  std::random_device random;
  return fmt::format("unisono-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

net::Address listen_address(const std::string& ip) {
  const std::optional<net::Address> address = net::Address::parse(ip, 0);
  UNISONO_CHECK(address.has_value(), fmt::format("the store was reached from \"{}\"", ip));
  return *address;
}

std::shared_ptr<engine::SymmetricMemory> make_memory(const Config& config) {
  const std::int64_t n_bytes =
      config.arena_bytes > 0 ? config.arena_bytes : shm::default_arena_bytes();
  if (n_bytes < kBoardBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("UNISONO_ARENA_BYTES is {}, but must be at least {}", n_bytes, kBoardBytes));
  }
  return std::make_shared<engine::SymmetricMemory>(
      std::make_shared<const shm::Arena>(shm::Arena::create(n_bytes)), kBoardOffset + kBoardBytes);
}

// What another rank has to say of a failure comes soon after it, or not at all.
constexpr std::chrono::milliseconds kExplainTimeout{500};

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

// Ranks that look for the roster a moment after rank 0 has given up must find what it found.
constexpr std::chrono::seconds kLingerTimeout{5};

// Where a process has had a group before, rank 0 may still have been about to end that one's store.
bool was_an_earlier_store(const JobOptions& options, const Error& error, Deadline deadline) {
  return error.code() == ErrorCode::kPeerLost && options.generation > 0 &&
         options.assignment.rank != 0 && !options.assignment.uses_agent_store &&
         !deadline.has_passed();
}

rendezvous::Meeting meet(const JobOptions& options, Deadline deadline) {
  while (true) {
    try {
      return rendezvous::meet(options.config, options.assignment, deadline);
    } catch (const Error& error) {
      if (!was_an_earlier_store(options, error, deadline)) {
        throw;
      }
    }
  }
}

rendezvous::Roster exchange_roster(const JobOptions& options,
                                   rendezvous::Meeting& meeting,
                                   const rendezvous::Member& self,
                                   Deadline deadline) {
  while (true) {
    try {
      return rendezvous::exchange_roster(*meeting.store,
                                         self,
                                         deadline,
                                         {.generation = options.generation,
                                          .stall = options.config.stall,
                                          .logger = rank_logger(options)});
    } catch (const Error& error) {
      meeting.store.reset();
      if (meeting.host != nullptr) {
        meeting.host->wait_until_left(Deadline::after(kLingerTimeout));
      }
      if (!was_an_earlier_store(options, error, deadline)) {
        throw;
      }
    }
    meeting = meet(options, deadline);
  }
}

std::vector<std::string> nodes_of(const rendezvous::Roster& roster) {
  std::vector<std::string> nodes;
  for (const rendezvous::Member& member : roster.members) {
    nodes.push_back(member.node);
  }
  return nodes;
}

std::vector<shm::NodeEndpoint> node_endpoints(const rendezvous::Roster& roster,
                                              const collective::Topology& topology) {
  std::vector<shm::NodeEndpoint> endpoints;
  for (const int rank : topology.local_ranks()) {
    if (rank != roster.rank) {
      const rendezvous::Member& member = roster.members[static_cast<std::size_t>(rank)];
      endpoints.push_back({.rank = rank,
                           .socket = member.endpoint,
                           .name = rendezvous::describe(member),
                           .pid = static_cast<pid_t>(member.pid)});
    }
  }
  return endpoints;
}

shm::Board make_board(const collective::Topology& topology,
                      const std::shared_ptr<const shm::Arena>& mine,
                      const std::vector<shm::NodePeer>& peers) {
  std::vector<std::shared_ptr<const shm::Arena>> arenas;
  auto peer = peers.begin();
  for (const int rank : topology.local_ranks()) {
    arenas.push_back(rank == topology.rank() ? mine : (peer++)->arena);
  }
  const auto ranks = topology.local_ranks();
  return {std::move(arenas), {ranks.begin(), ranks.end()}, topology.local_rank(), kBoardOffset};
}

// `own` is the memory of this rank's mailbox, allocated as its node's peers have done: before any
// other, so that it lies at the same offset in all arenas.
shm::Mailbox make_mailbox(const rendezvous::Roster& roster,
                          const collective::Topology& topology,
                          const std::shared_ptr<const shm::Arena>& mine,
                          const std::vector<shm::NodePeer>& peers,
                          const Buffer& own) {
  const std::int64_t offset_bytes = mine->offset_of(own.data, own.n_bytes()).value();
  std::vector<shm::MailboxMember> members;
  auto peer = peers.begin();
  for (const int rank : topology.local_ranks()) {
    const rendezvous::Member& member = roster.members[static_cast<std::size_t>(rank)];
    members.push_back({.arena = rank == topology.rank() ? mine : (peer++)->arena,
                       .offset_bytes = offset_bytes,
                       .pid = static_cast<pid_t>(member.pid),
                       .name = rendezvous::describe(member),
                       .bell = member.endpoint + "-messages"});
  }
  const bool has_bell_socket = topology.n_nodes() > 1 && topology.local_world_size() > 1;
  return {std::move(members), topology.local_rank(), has_bell_socket};
}

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
    members.push_back({.address = *address, .name = rendezvous::describe(member)});
  }
  return members;
}

}  // namespace

Job::Job(const JobOptions& options) : Job(options, Deadline::after(options.timeout)) {}

Job::Job(const JobOptions& options, Deadline deadline)
    : timeout_(options.timeout),
      meeting_(meet(options, deadline)),
      endpoint_(random_endpoint_name()),
      node_listener_(net::listen_unix_abstract(endpoint_)),
      data_listener_(net::listen_tcp(listen_address(meeting_.local_ip))),
      memory_(make_memory(options.config)),
      roster_(exchange_roster(
          options,
          meeting_,
          describe_self(options, endpoint_, net::local_address(data_listener_.get())),
          deadline)),
      topology_(roster_.rank, nodes_of(roster_)),
      peers_(shm::meet_node(roster_.rank,
                            node_endpoints(roster_, topology_),
                            memory_->arena(),
                            node_listener_.get(),
                            roster_.job,
                            meeting_.secret,
                            deadline)),
      board_(make_board(topology_, memory_->arena(), peers_)),
      mesh_(mesh_members(roster_),
            meeting_.secret,
            {.job = roster_.job, .purpose = tcp::kDataPurpose, .rank = roster_.rank, .group = 0}),
      mailbox_memory_(
          memory_->allocate(shm::Mailbox::n_bytes(topology_.local_world_size()), DType::kUInt8)),
      mailbox_(make_mailbox(roster_, topology_, memory_->arena(), peers_, mailbox_memory_)),
      message_mesh_(
          mesh_members(roster_),
          meeting_.secret,
          {.job = roster_.job, .purpose = tcp::kMessagePurpose, .rank = roster_.rank, .group = 0}),
      ranks_(roster_, rank_logger(options)),
      failures_(meeting_.store, roster_.job, roster_.rank),
      engine_(std::make_unique<engine::NativeEngine>(
          engine::NativeParts{.topology = topology_,
                              .board = board_,
                              .mesh = mesh_,
                              .memory = memory_,
                              .failure = failure_,
                              .ranks = ranks_,
                              .stall = options.config.stall})),
      messenger_(std::make_unique<Messenger>(
          MessengerParts{.topology = topology_,
                         .mailbox = mailbox_,
                         .mesh = message_mesh_,
                         .ranks = ranks_,
                         .failure = failure_,
                         .stall = options.config.stall,
                         .explain = [this](const Error& error) { return explain(error); }})) {
  node_listener_.reset();
  failure_.on_set([this] { wake(); });
  watcher_ = std::make_unique<Watcher>(WatcherParts{.roster = roster_,
                                                    .secret = meeting_.secret,
                                                    .data_listener = data_listener_.get(),
                                                    .peers = peers_,
                                                    .mesh = mesh_,
                                                    .message_mesh = message_mesh_,
                                                    .ranks = ranks_,
                                                    .failure = failure_,
                                                    .wake = [this] { wake(); }});
}

void Job::wake() const {
  board_.wake();
  mesh_.wake();
  messenger_->wake();
}

void Job::fail(const Error& error) noexcept {
  failure_.set(error);
  if (std::exchange(has_told_, true)) {
    return;
  }
  publish(error);
  engine_->abort(error);
  messenger_->abort(error);
  watcher_->tell_peers([&] { return tcp::encode_abort(error); });
}

void Job::publish(const Error& error) noexcept {
  if (topology_.n_nodes() > 1 && !has_published_.exchange(true)) {
    failures_.publish(error);
  }
}

Error Job::explain(const Error& error) noexcept {
  if (topology_.n_nodes() == 1) {
    return error;
  }
  publish(error);
  if (error.code() != ErrorCode::kPeerLost && error.code() != ErrorCode::kTimeout) {
    return error;
  }
  const std::string others = failures_.read_others(error.what(), kExplainTimeout);
  return others.empty()
             ? error
             : Error(error.code(), fmt::format("{}; other ranks say: {}", error.what(), others));
}

void Job::leave() noexcept {
  messenger_->finish();
  if (failure_.is_set()) {
    fail(failure_.error());
  }
  engine_->leave();
  messenger_->leave();
  if (!failure_.is_set()) {
    watcher_->tell_peers(tcp::encode_bye);
  }
  watcher_.reset();
  mesh_.close();
  message_mesh_.close();
  // The caller may hold the group for long, and a next one may need the port.
  meeting_.store.reset();
  failures_.close();
  if (meeting_.host != nullptr && failure_.is_set() && topology_.n_nodes() > 1) {
    // The others may still look for the reason.
    meeting_.host->wait_until_left(Deadline::after(2 * kExplainTimeout));
  }
  meeting_.host.reset();
  data_listener_.reset();
  for (shm::NodePeer& peer : peers_) {
    peer.socket.reset();
  }
}

}  // namespace unisono::comm
