#pragma once

namespace unisono::transport {

// What the hello of a connection between ranks says it is for.

/// The operations of a group; of each pair the higher rank opens it, and the lower one late.
inline constexpr const char* kDataPurpose = "data";

/// The messages of a group; whichever rank needs it first opens it.
inline constexpr const char* kMessagePurpose = "messages";

}  // namespace unisono::transport
