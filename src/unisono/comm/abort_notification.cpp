#include "unisono/comm/abort_notification.h"

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/job.h"
#include "unisono/comm/links.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::milliseconds kSendTimeout{500};

// Of the last that is begun comes kSendTimeout on top.
constexpr std::chrono::seconds kNotifyTimeout{1};

// It is sent with the end of the hello; meanwhile the watcher does nothing else.
constexpr std::chrono::milliseconds kReadTimeout{200};

}  // namespace

void send_abort_notification(const Job& job,
                             const GroupSetup& setup,
                             int rank,
                             const Error& reason) noexcept {
  const Deadline deadline = Deadline::after(kSendTimeout);
  try {
    const tcp::MeshMember member =
        engine::mesh_members(setup.roster)[static_cast<std::size_t>(rank)];
    const Fd socket = net::connect_tcp(member.address, deadline, net::IfRefused::kGiveUp);
    (void)net::connect_hello(socket.get(),
                             job.session().secret,
                             {.job = setup.roster.job,
                              .purpose = kAbortPurpose,
                              .rank = setup.roster.self().rank,
                              .group = setup.number},
                             deadline);
    net::write_all(socket.get(), tcp::encode_abort(setup.number, reason), deadline, member.name);
  } catch (const std::exception&) {
    // It is gone, say: then the store has to tell it.
    return;
  }
}

// The ranks of a node begin with different ones: one that can't be reached must not keep the news
// from all others.
void notify_other_nodes(const Job& job, const GroupSetup& setup, const Error& reason) noexcept {
  const Deadline deadline = Deadline::after(kNotifyTimeout);
  try {
    const collective::Topology topology = engine::topology_of(setup.roster);
    const auto local_rank = static_cast<std::size_t>(topology.local_rank());
    for (int step = 0; step < topology.n_nodes() && !deadline.has_passed(); ++step) {
      const int node = (topology.node() + topology.local_rank() + step) % topology.n_nodes();
      if (node != topology.node()) {
        const std::span<const int> ranks = topology.ranks_of(node);
        send_abort_notification(job, setup, ranks[local_rank % ranks.size()], reason);
      }
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say: they have to find out by themselves.
  }
}

std::optional<Error> read_abort_notification(int fd) {
  const Deadline deadline = Deadline::after(kReadTimeout);
  try {
    tcp::FrameBytes header{};
    net::read_exact(fd, header, deadline, "a rank");
    const std::optional<tcp::Frame> frame = tcp::decode(header);
    if (!frame || frame->kind != tcp::FrameKind::kAbort) {
      return std::nullopt;
    }
    std::vector<std::byte> text(frame->n_bytes);
    net::read_exact(fd, text, deadline, "a rank");
    return tcp::decode_abort(*frame, text);
  } catch (const Error&) {
    return std::nullopt;  // It ended meanwhile.
  }
}

}  // namespace unisono::comm
