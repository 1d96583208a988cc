#include "unisono/transport/leave_frames.h"

#include <cstdint>
#include <exception>

#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/stream.h"

namespace unisono::transport {
namespace {

template <class Write>
void try_to(Write write) noexcept {
  try {
    write();
  } catch (const std::exception&) {
    return;  // Out of memory while giving up.
  }
}

}  // namespace

void send_abort(int fd, std::uint32_t group, const Error& reason) noexcept {
  try_to([&] { (void)net::write_some(fd, encode_abort(group, reason)); });
}

void send_abort(Stream& stream, std::uint32_t group, const Error& reason) noexcept {
  try_to([&] { (void)stream.write_some(encode_abort(group, reason), {}); });
}

void send_leave(Stream& stream, std::uint32_t group) noexcept {
  try_to([&] { (void)stream.write_some(encode_leave(group), {}); });
}

}  // namespace unisono::transport
