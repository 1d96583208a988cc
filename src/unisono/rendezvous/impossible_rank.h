#pragma once

#include <string>

#include "unisono/base/config.h"
#include "unisono/rendezvous/methods/init_method.h"
#include "unisono/rendezvous/resolve_rendezvous.h"

namespace unisono::rendezvous {

/// Tells those who wait for all ranks why this process, for which assign() has found the `problem`,
/// does not take part. Does nothing unless that is its rank alone, which is not below the world
/// size, and gives up when their store is not there within 2 seconds.
void tell_of_impossible_rank(const InitMethod& method,
                             const RendezvousRequest& request,
                             const Config& config,
                             const std::string& problem) noexcept;

}  // namespace unisono::rendezvous
