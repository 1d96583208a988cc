#include "unisono/comm/notice.h"

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::milliseconds kSendTimeout{500};

// It is sent with the end of the hello; meanwhile the watcher does nothing else.
constexpr std::chrono::milliseconds kReadTimeout{200};

}  // namespace

void send_notice(const tcp::MeshMember& member,
                 const std::string& secret,
                 const net::HelloInfo& mine,
                 const Error& reason) noexcept {
  const Deadline deadline = Deadline::after(kSendTimeout);
  try {
    const Fd socket = net::connect_tcp(member.address, deadline, net::IfRefused::kGiveUp);
    (void)net::connect_hello(socket.get(), secret, mine, deadline);
    net::write_all(socket.get(), tcp::encode_abort(mine.group, reason), deadline, member.name);
  } catch (const std::exception&) {
    // It is gone, say: then the store has to tell it.
    return;
  }
}

std::optional<Error> read_notice(int fd) {
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
