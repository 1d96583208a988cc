#pragma once

#include <cstdint>

#include "unisono/base/error.h"
#include "unisono/transport/stream.h"

namespace unisono::transport {

// The last frame on a connection, between two others. A full socket, or one whose peer is gone,
// drops it: then the closed connection has to say it all. Neither blocks.

/// Tells the peer why this side's group failed.
void send_abort(int fd, std::uint32_t group, const Error& reason) noexcept;
void send_abort(Stream& stream, std::uint32_t group, const Error& reason) noexcept;

/// Tells the peer that this rank leaves in good order.
void send_leave(Stream& stream, std::uint32_t group) noexcept;

}  // namespace unisono::transport
