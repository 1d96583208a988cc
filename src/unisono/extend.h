#pragma once

/// The door for extensions of the core: an engine of collectives, a store, a server of stores, or a
/// method of discovery that a program supplies. Includes unisono/unisono.h. Link unisono::core.

#include "unisono/engine/backends.h"               // IWYU pragma: export
#include "unisono/rendezvous/methods/discovery.h"  // IWYU pragma: export
#include "unisono/store/hash_store.h"              // IWYU pragma: export
#include "unisono/store/store.h"                   // IWYU pragma: export
#include "unisono/store/tcp_store.h"               // IWYU pragma: export
#include "unisono/unisono.h"                       // IWYU pragma: export
