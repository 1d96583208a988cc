#pragma once

#include <string>

#include "unisono/launch/binding/topology.h"

namespace unisono::launch {

/// This machine, as libhwloc sees it, which is loaded for it; or the machine that `synthetic`
/// describes in hwloc's words, as "pack:2 core:4 pu:2".
///
/// Throws Error: kNotFound where the library is not installed, kSystem where it can't tell.
[[nodiscard]] Topology read_topology(const std::string& synthetic = "");

}  // namespace unisono::launch
