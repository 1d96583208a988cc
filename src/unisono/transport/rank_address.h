#pragma once

#include <string>

#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"

namespace unisono::transport {

// What the hello of a connection between ranks says it is for.

/// The operations of a group; of each pair the higher rank opens it, and the lower one late.
inline constexpr const char* kDataPurpose = "data";

/// The messages of a group; whichever rank needs it first opens it.
inline constexpr const char* kMessagePurpose = "messages";

/// Where a rank of a group is reached.
struct RankAddress {
  int job_rank;          ///< By which ranks know each other in the hello.
  net::Address address;  ///< Of its data listener.
  std::string name;      ///< For messages: "rank 2 (pid 4123 on node-a)".
};

/// Throws Error(kMismatch) unless the other side of a hello with `rank`, in this job, is that rank.
void check_answer(const RankAddress& rank, const net::HelloInfo& theirs, const std::string& job);

/// The error about a rank at whose address nobody listens any more. Whether it has left in good
/// order only those know who had a connection with it.
[[nodiscard]] Error nobody_listens(const RankAddress& rank);

}  // namespace unisono::transport
