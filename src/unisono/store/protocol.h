#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/bytes.h"

namespace unisono::store {

/// Purpose of a connection to a store, as sent in the handshake.
inline constexpr const char* kHelloPurpose = "store";

/// Requests of PyTorch's TCPStore. The values are the wire format.
enum class Opcode : std::uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
  kBarrier,
  // Extensions of Unisono. PyTorch's server closes the connection on such a request.
  kVersion = 0xE0,  ///< Reply: net::kProtocolVersion as u32, then the job's name.
  kWatch,           ///< Reply: Notice::kWatching. Notice::kChanged follows for every change.
  kUnwatch,
  /// No reply. The value is set when the connection ends, if the key has no value then.
  kSetAtEnd,
  kExplain  ///< No reply. From then on, a ReplyKind precedes each reply.
};

/// Argument of kValidate, the first request of an unauthenticated connection.
inline constexpr std::uint32_t kValidateMagic = 0x3C85F7CE;

/// Precedes each reply and each notice to a client that has sent kExplain.
enum class ReplyKind : std::uint8_t {
  kAnswer = 0,
  kRefusal = 1,  ///< Followed by a string: the reason. The request has changed no data.
  /// Followed by a string: the reason for which the connection ends now, whatever was requested.
  kEnd = 2
};

enum class CheckReply : std::uint8_t { kReady = 0, kNotReady = 1 };

enum class WaitReply : std::uint8_t { kStopWaiting = 0, kWaitCanceled = 1 };

/// Messages to a connection that watches keys; the key follows. After kChanged and the key come the
/// values before and after the change, each as a u8 flag, followed by the string if the flag is 1.
enum class WatchNotice : std::uint8_t { kWatching = 0, kChanged = 1 };

/// PyTorch's clients and Unisono's put this before each key of the user.
inline constexpr std::string_view kKeyPrefix = "/";

// Requests of a client, or the beginnings of requests. Keys receive kKeyPrefix.

[[nodiscard]] ByteWriter begin(Opcode opcode);
[[nodiscard]] ByteWriter begin(Opcode opcode, const std::string& key);
[[nodiscard]] ByteWriter begin(Opcode opcode, std::span<const std::string> keys);
[[nodiscard]] ByteWriter begin(Opcode opcode, const std::string& key, const std::string& value);
[[nodiscard]] ByteWriter begin(Opcode opcode, const std::string& key, std::int64_t number);

void put_key(ByteWriter& message, const std::string& key);

}  // namespace unisono::store
