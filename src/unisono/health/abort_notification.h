#pragma once

#include <optional>

#include "unisono/base/error.h"
#include "unisono/health/group_contacts.h"

namespace unisono::health {

/// What the hello of a notice says it is for.
inline constexpr const char* kAbortPurpose = "notice";

/// Tells a rank of a group, of another node, why this rank's group failed, by a connection of its
/// own: that rank's watcher hears it, whatever the rank itself waits for. A rank that can't be
/// reached within half a second is not told.
void send_abort_notification(const GroupContacts& contacts, int rank, const Error& reason) noexcept;

/// Where no store can tell them: tells a rank of each other node of the group, which passes it on
/// there. Takes a second and a half at most: whom it has not come to then is not told.
void notify_other_nodes(const GroupContacts& contacts, const Error& reason) noexcept;

/// What a rank tells by such a connection, after the hello; nothing if it does not come at once.
[[nodiscard]] std::optional<Error> read_abort_notification(int fd);

}  // namespace unisono::health
