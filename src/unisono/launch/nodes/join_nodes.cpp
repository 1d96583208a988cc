#include "unisono/launch/nodes/join_nodes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/random_hex.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/nodes/coordinator.h"
#include "unisono/launch/nodes/node_connection.h"
#include "unisono/launch/nodes/node_generations.h"
#include "unisono/launch/nodes/node_member.h"
#include "unisono/launch/run.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/host_port.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/loopback.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/serve_store.h"

namespace unisono::launch::nodes {
namespace {

CoordinatorOptions coordinator_options(const JoinRequest& request) {
  const NodesOptions& nodes = request.nodes;
  const bool has_secret = !request.secret.empty();
  const net::Address address = rendezvous::listen_address(nodes.host, nodes.port, has_secret);
  const Logger logger("launcher", request.config.log_level);
  return {.address = address,
          .secret = request.secret,
          .keep_alive = {nodes.keep_alive_interval, nodes.max_keep_alives},
          .rendezvous = {.min_nodes = nodes.min_nodes,
                         .max_nodes = nodes.max_nodes,
                         .max_restarts = request.job.max_restarts,
                         .max_spares = nodes.max_spares,
                         .run_id = request.job.run_id,
                         .stall_timeout = request.job.stall_timeout,
                         .has_front = request.has_front,
                         .join_timeout = nodes.join_timeout,
                         .last_call = nodes.last_call},
          .store = {.address = rendezvous::listen_address(nodes.host, 0, has_secret),
                    .secret = request.secret,
                    .tls = request.config.tls,
                    .notes_turned_away = true,
                    .logger = Logger("store", request.config.log_level)},
          // PyTorch's clients can't prove that they know the secret.
          .serves_store = !has_secret || !request.has_plain_clients,
          .logger = logger};
}

// Null where this is not the coordinator's node.
std::unique_ptr<Coordinator> start_coordinator(net::EventLoop& loop, const JoinRequest& request) {
  const NodesOptions& nodes = request.nodes;
  const bool is_given = nodes.node_rank >= 0 || nodes.is_coordinator;
  if (is_given && nodes.node_rank != 0 && !nodes.is_coordinator.value_or(false)) {
    return nullptr;
  }
  if (!is_given && !net::is_this_machine(nodes.host)) {
    return nullptr;
  }
  try {
    return std::make_unique<Coordinator>(loop, coordinator_options(request));
  } catch (const net::PortInUse& error) {
    if (!is_given) {
      return nullptr;  // By another node of this job on this machine.
    }
    throw Error(error.code(),
                fmt::format("this is node 0, where the nodes meet, and {}; give all nodes another "
                            "--master-port or --rdzv-endpoint",
                            error.what()));
  }
}

Join make_join(const JoinRequest& request, bool is_coordinator) {
  return {.host = request.job.host,
          .pid = ::getpid(),
          .n_workers = request.job.local_world_size,
          .wanted_rank = request.nodes.node_rank,
          .min_nodes = request.nodes.min_nodes,
          .max_nodes = request.nodes.max_nodes,
          .run_id = request.wanted_run_id,
          .is_coordinator = is_coordinator,
          .stall_ms = request.job.stall_timeout.count()};
}

}  // namespace

std::unique_ptr<Generations> join_nodes(net::EventLoop& loop, const JoinRequest& request) {
  const NodesOptions& nodes = request.nodes;
  std::unique_ptr<Coordinator> coordinator = start_coordinator(loop, request);
  const bool is_coordinator = coordinator != nullptr;
  const bool is_reached_by_loopback = is_coordinator && coordinator->address().is_wildcard();
  const bool is_loopback = net::is_this_machine(nodes.host) && request.secret.empty();
  auto member = std::make_unique<NodeMember>(
      loop,
      MemberOptions{
          .host = is_reached_by_loopback ? net::loopback_host()
                  : is_coordinator       ? coordinator->address().ip()
                                         : nodes.host,
          .port = is_coordinator ? coordinator->address().port() : nodes.port,
          .secret = request.secret,
          .join = make_join(request, is_coordinator),
          .keep_alive = {nodes.keep_alive_interval, nodes.max_keep_alives},
          .join_timeout = nodes.join_timeout,
          .hint = is_loopback
                      ? " (only nodes on this machine can meet at this address: give all nodes "
                        "--master-addr or --rdzv-endpoint with the name of node 0)"
                      : ""});
  return std::make_unique<NodeGenerations>(
      std::move(coordinator), std::move(member), request.job, request.has_front);
}

}  // namespace unisono::launch::nodes
