#include "unisono/transport/leave_frames.h"

#include <cstdint>
#include <exception>

#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"

namespace unisono::transport {
namespace {

template <class EncodeFrame>
void send_frame(int fd, EncodeFrame encode_frame) noexcept {
  try {
    (void)net::write_some(fd, encode_frame());
  } catch (const std::exception&) {
    // Out of memory while giving up.
    return;
  }
}

}  // namespace

void send_abort(int fd, std::uint32_t group, const Error& reason) noexcept {
  send_frame(fd, [&] { return encode_abort(group, reason); });
}

void send_leave(int fd, std::uint32_t group, const Departure& departure) noexcept {
  send_frame(fd, [&] { return encode_leave(group, departure); });
}

}  // namespace unisono::transport
