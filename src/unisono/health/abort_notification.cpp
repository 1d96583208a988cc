#include "unisono/health/abort_notification.h"

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
#include "unisono/health/group_contacts.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {
namespace {

constexpr std::chrono::milliseconds kSendTimeout{500};

// Of the last that is begun comes kSendTimeout on top.
constexpr std::chrono::seconds kNotifyTimeout{1};

// It is sent with the end of the hello; meanwhile the watcher does nothing else.
constexpr std::chrono::milliseconds kReadTimeout{200};

}  // namespace

void send_abort_notification(const GroupContacts& contacts,
                             int rank,
                             const Error& reason) noexcept {
  const Deadline deadline = Deadline::after(kSendTimeout);
  try {
    const transport::RankAddress member =
        address_of(contacts.roster.members[static_cast<std::size_t>(rank)]);
    const Fd socket = net::connect_tcp(member.address, deadline, net::IfRefused::kGiveUp);
    (void)net::connect_hello(
        socket.get(), contacts.secret, contacts.hello(kAbortPurpose), deadline);
    net::write_all(
        socket.get(), transport::encode_abort(contacts.group, reason), deadline, member.name);
  } catch (const std::exception&) {
    // It is gone, say: then the store has to tell it.
    return;
  }
}

// The ranks of a node begin with different ones: one that can't be reached must not keep the news
// from all others.
void notify_other_nodes(const GroupContacts& contacts, const Error& reason) noexcept {
  const Deadline deadline = Deadline::after(kNotifyTimeout);
  try {
    const collective::Topology topology = topology_of(contacts.roster);
    const auto local_rank = static_cast<std::size_t>(topology.local_rank());
    for (int step = 0; step < topology.n_nodes() && !deadline.has_passed(); ++step) {
      const int node = (topology.node() + topology.local_rank() + step) % topology.n_nodes();
      if (node != topology.node()) {
        const std::span<const int> ranks = topology.ranks_of(node);
        send_abort_notification(contacts, ranks[local_rank % ranks.size()], reason);
      }
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say: they have to find out by themselves.
  }
}

std::optional<Error> read_abort_notification(int fd) {
  const Deadline deadline = Deadline::after(kReadTimeout);
  try {
    transport::FrameBytes header{};
    net::read_exact(fd, header, deadline, "a rank");
    const std::optional<transport::Frame> frame = transport::decode(header);
    if (!frame || frame->kind != transport::FrameKind::kAbort) {
      return std::nullopt;
    }
    std::vector<std::byte> text(frame->n_bytes);
    net::read_exact(fd, text, deadline, "a rank");
    return transport::decode_abort(*frame, text);
  } catch (const Error&) {
    return std::nullopt;  // It ended meanwhile.
  }
}

}  // namespace unisono::health
