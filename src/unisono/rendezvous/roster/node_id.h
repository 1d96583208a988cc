#pragma once

#include <cstdint>
#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// Key of this node: ranks with equal keys can pass each other file descriptors over an abstract
/// Unix socket, and so share memory.
///
/// UNISONO_NODE_ID if it is set; else made of what that needs: the same boot of the same kernel,
/// the same network and pid namespaces, the same user.
[[nodiscard]] std::string node_id(const Config& config);

/// Tells a process from all others, for as long as they may meet.
[[nodiscard]] std::uint64_t random_number();

/// This machine's name, for messages.
[[nodiscard]] std::string host_name();

}  // namespace unisono::rendezvous
