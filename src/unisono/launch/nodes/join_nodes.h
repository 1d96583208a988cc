#pragma once

#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/run.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::nodes {

struct JoinRequest {
  NodesOptions nodes;
  JobLayout job;
  std::string wanted_run_id;  ///< Empty: any.
  std::string secret;
  bool has_plain_clients = false;  ///< The ranks use PyTorch's own store client.
  Config config;
  bool has_front = false;  ///< See RendezvousOptions.
};

/// Makes this process the launcher of a node of the job, and its coordinator where it is node 0 or,
/// if nodes are given their ranks, the first one at the host where they meet.
///
/// Throws Error: kSystem when something else has the port, kNotFound.
[[nodiscard]] std::unique_ptr<Generations> join_nodes(net::EventLoop& loop,
                                                      const JoinRequest& request);

}  // namespace unisono::launch::nodes
