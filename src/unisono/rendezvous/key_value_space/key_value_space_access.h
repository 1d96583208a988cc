#pragma once

#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

struct Launcher;

enum class KeyValueSpaceKind { kNone, kPmi, kPmix };

/// "PMI", "PMIx", "none".
[[nodiscard]] const char* to_string(KeyValueSpaceKind kind) noexcept;

/// The launcher's key space through which the ranks of a job on several nodes can agree on a
/// secret and on a place to meet.
struct KeyValueSpaceAccess {
  KeyValueSpaceKind kind = KeyValueSpaceKind::kNone;
  int pmi_fd = -1;  ///< The connection, of kPmi.
  /// Why there is none, and how to get one, where the job is on several nodes; else empty.
  std::string problem = {};
};

/// What `launcher` offers to this process, by its variables alone: nothing is connected. kNone
/// where all ranks are on one node, where `launcher` is null, or where the ranks are not the
/// launcher's processes: the key space knows just these.
[[nodiscard]] KeyValueSpaceAccess find_key_space(const Environment& environment,
                                                 const Launcher* launcher,
                                                 int rank,
                                                 int world_size);

}  // namespace unisono::rendezvous
