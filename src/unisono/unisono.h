#pragma once

/// All of the core that programs without LibTorch begin with: process groups, messages and objects,
/// the stores, and what a program can add of its own. Link unisono::comm.

#include "unisono/base/buffer.h"                   // IWYU pragma: export
#include "unisono/base/dtype.h"                    // IWYU pragma: export
#include "unisono/base/error.h"                    // IWYU pragma: export
#include "unisono/base/error_text.h"               // IWYU pragma: export
#include "unisono/comm/objects.h"                  // IWYU pragma: export
#include "unisono/comm/process_group.h"            // IWYU pragma: export
#include "unisono/comm/timed_out.h"                // IWYU pragma: export
#include "unisono/engine/backends.h"               // IWYU pragma: export
#include "unisono/rendezvous/methods/discovery.h"  // IWYU pragma: export
#include "unisono/store/file_store.h"              // IWYU pragma: export
#include "unisono/store/hash_store.h"              // IWYU pragma: export
#include "unisono/store/prefix_store.h"            // IWYU pragma: export
#include "unisono/store/tcp_host.h"                // IWYU pragma: export
#include "unisono/store/tcp_store.h"               // IWYU pragma: export
