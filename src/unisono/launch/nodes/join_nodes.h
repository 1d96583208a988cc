#pragma once

#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/run.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::nodes {

/// Settings of a node that joins a job.
struct JoinRequest {
  NodesOptions nodes;
  JobLayout job;
  std::string wanted_run_id;  ///< Empty: any job.
  std::string secret;
  bool has_plain_clients = false;  ///< The ranks use PyTorch's store client.
  base::Config config;
  bool has_front = false;  ///< See RendezvousOptions.
};

/// Joins this launcher to the job as a node. This launcher also becomes the coordinator if `nodes`
/// makes it node 0 or the coordinator; without such a setting, the first launcher that listens on
/// the host of the rendezvous becomes the coordinator.
///
/// Throws Error(kSystem) if another program uses the port, Error(kNotFound) if the host cannot be
/// resolved.
[[nodiscard]] std::unique_ptr<Generations> join_nodes(net::EventLoop& loop,
                                                      const JoinRequest& request);

}  // namespace unisono::launch::nodes
