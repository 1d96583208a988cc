#pragma once

#include "unisono/transport/stream.h"

namespace unisono::ucx {

/// Streams by OpenUCX (https://openucx.org): InfiniBand and RoCE where there is such a network,
/// else TCP. UCX has to see the end of a peer, which its shared memory does not. What it chooses
/// from is set by its own variables, such as UCX_TLS and UCX_NET_DEVICES.
///
/// Throws Error(kNotFound) where this build has no UCX, or the machine has none.
[[nodiscard]] transport::MakeStream prepare_streams();

}  // namespace unisono::ucx
