#include "unisono/transport/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/rank_address.h"
#include "unisono/transport/tcp/liveness.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::tcp {

Mesh::Mesh(std::vector<transport::RankAddress> members,
           std::string secret,
           net::HelloInfo mine,
           transport::MakeStream make_stream,
           bool has_other_nodes)
    : members_(std::move(members)),
      job_ranks_(transport::where_they_differ(transport::job_ranks_of(members_))),
      traffic_(members_.size()),
      secret_(std::move(secret)),
      mine_(std::move(mine)),
      make_stream_(std::move(make_stream)) {
  if (has_other_nodes) {
    wakeup_ = std::make_unique<net::Wakeup>();
  }
}

Connection* Mesh::find(int rank) const {
  const auto found = connections_.find(rank);
  return found == connections_.end() ? nullptr : found->second.get();
}

Connection& Mesh::connection(int rank, transport::WaitMonitor& wait_monitor) {
  if (Connection* const known = find(rank)) {
    return *known;
  }
  const std::unique_ptr<Opening> opening = begin_opening(rank);
  while (true) {
    if (Fd socket = opening->progress(); socket.is_open()) {
      wait_monitor.note_progress();
      return adopt(rank, std::move(socket));
    }
    wait_monitor.check([rank] { return std::vector<int>{rank}; });
    // A stopped rank's kernel takes the connection, and the rank says nothing: this one stays awake
    // to the group's failure.
    std::array<pollfd, 2> polls{opening->poll(),
                                {.fd = wakeup_fd(), .events = POLLIN, .revents = 0}};
    const Deadline next_step = earlier(wait_monitor.next_check(), opening->next_step());
    (void)::poll(polls.data(), polls.size(), next_step.poll_timeout_ms());
    if (polls[1].revents != 0) {
      clear_wakeups();
    }
  }
}

std::unique_ptr<Opening> Mesh::begin_opening(int rank) {
  const transport::RankAddress& member = members_[static_cast<std::size_t>(rank)];
  return is_dialed(rank) ? dial(member, secret_, mine_)
                         : expect(member, [this, rank] { return take_delivered(rank); });
}

bool Mesh::is_dialed(int rank) const {
  return members_[static_cast<std::size_t>(rank)].job_rank < mine_.rank;
}

Connection& Mesh::adopt(int rank, Fd socket) {
  net::set_no_delay(socket.get());
  net::set_idle_timeout(socket.get(), kLivenessTimeout);
  std::unique_ptr<Connection>& connection = connections_[rank];
  connection = std::make_unique<Connection>(rank,
                                            members_[static_cast<std::size_t>(rank)].name,
                                            mine_.group,
                                            make_stream_(std::move(socket)),
                                            job_ranks_,
                                            is_dialed(rank));
  return *connection;
}

Fd Mesh::take_delivered(int rank) {
  const MutexLock lock(mutex_);
  const auto found = delivered_.find(rank);
  if (found == delivered_.end()) {
    return {};
  }
  Fd socket = std::move(found->second);
  delivered_.erase(found);
  return socket;
}

void Mesh::adopt_delivered() {
  std::map<int, Fd> delivered;
  {
    const MutexLock lock(mutex_);
    delivered.swap(delivered_);
  }
  for (auto& [rank, socket] : delivered) {
    if (find(rank) == nullptr) {
      adopt(rank, std::move(socket));
    }
  }
}

void Mesh::close() {
  connections_.clear();
  const MutexLock lock(mutex_);
  delivered_.clear();
}

void Mesh::deliver(int rank, Fd socket) {
  {
    const MutexLock lock(mutex_);
    delivered_.insert_or_assign(rank, std::move(socket));
  }
  wake();
}

std::vector<Connection*> Mesh::open_connections() const {
  std::vector<Connection*> open;
  for (const auto& [rank, connection] : connections_) {
    open.push_back(connection.get());
  }
  return open;
}

}  // namespace unisono::tcp
