#include "unisono/health/wait_inquiry.h"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/health/rank_wait.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/frame.h"

namespace unisono::health {
namespace {

Fd call(const Respondent& respondent, std::span<const std::byte> bytes, Deadline deadline) {
  Fd socket = net::connect_tcp(respondent.member.address, deadline, net::IfRefused::kGiveUp);
  (void)net::connect_hello(socket.get(), respondent.secret, respondent.mine, deadline);
  net::write_all(socket.get(), bytes, deadline, respondent.member.name);
  return socket;
}

}  // namespace

std::optional<RankWait> ask_for_wait(const Respondent& respondent, const RankWait& waiter) {
  const Deadline deadline = Deadline::after(kAnswerTimeout);
  try {
    const Fd socket = call(respondent, encode_wait(waiter), deadline);
    return read_wait(socket.get(), deadline);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void tell_verdict(const Respondent& respondent, const Error& verdict) {
  const Deadline deadline = Deadline::after(kAnswerTimeout);
  try {
    const Fd socket =
        call(respondent, transport::encode_abort(respondent.mine.group, verdict), deadline);
    // It ends the connection when it has read.
    std::array<std::byte, 1> nothing{};
    net::read_exact(socket.get(), nothing, deadline, respondent.member.name);
  } catch (const Error&) {
    return;
  }
}

std::optional<RankWait> read_wait(int fd, Deadline deadline) {
  try {
    transport::FrameBytes header{};
    net::read_exact(fd, header, deadline, "a rank");
    const std::optional<transport::Frame> frame = transport::decode(header);
    if (!frame || frame->kind != transport::FrameKind::kWait) {
      return std::nullopt;
    }
    std::vector<std::byte> payload(frame->n_bytes);
    net::read_exact(fd, payload, deadline, "a rank");
    return decode_wait(payload);
  } catch (const Error&) {
    return std::nullopt;  // It ended the connection, say.
  }
}

}  // namespace unisono::health
