#pragma once

#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {

/// What the hello of a notice says it is for.
inline constexpr const char* kNoticePurpose = "notice";

/// Tells a rank of another node why this rank's group failed, by a connection of its own: that
/// rank's watcher hears it, whatever the rank itself waits for. `secret` and `mine` are for the
/// hello. A rank that can't be reached within half a second is not told.
void send_notice(const tcp::MeshMember& member,
                 const std::string& secret,
                 const net::HelloInfo& mine,
                 const Error& reason) noexcept;

/// What a rank tells by such a connection, after the hello; nothing if it does not come at once.
[[nodiscard]] std::optional<Error> read_notice(int fd);

}  // namespace unisono::comm
