#pragma once

#include <cstdint>
#include <string_view>

namespace unisono::store {

/// What a connection to a store says in its hello that it is for.
inline constexpr const char* kHelloPurpose = "store";

/// Requests of PyTorch's TCPStore; the values are its wire format.
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
  // Ours, which PyTorch's server answers by hanging up.
  kVersion = 0xE0,  ///< Answered with net::kProtocolVersion, as u32, and the job's name.
  kWatch,           ///< Answered with Notice::kWatching; kChanged follow whenever there is news.
  kUnwatch,
  kSetAtEnd,  ///< No answer. The value is set when the connection ends, where the key has none.
  kExplain    ///< No answer. From then on a ReplyKind stands before each.
};

/// Argument of kValidate, the first request of a plain connection.
inline constexpr std::uint32_t kValidateMagic = 0x3C85F7CE;

/// Stands before each reply, and each notice, to a client that has sent kExplain.
enum class ReplyKind : std::uint8_t {
  kAnswer = 0,
  kRefusal = 1,  ///< Then a string, why there is no answer. The request has changed nothing.
  kEnd = 2       ///< Then a string, why the connection ends now, whatever was asked.
};

enum class CheckReply : std::uint8_t { kReady = 0, kNotReady = 1 };

enum class WaitReply : std::uint8_t { kStopWaiting = 0, kWaitCanceled = 1 };

/// What a connection that watches keys is sent, then the key. After kChanged and the key come the
/// value before and the value after: each a u8 that says whether there was one, and its bytes if
/// so.
enum class Notice : std::uint8_t { kWatching = 0, kChanged = 1 };

/// PyTorch's clients, and ours, put this before each key of the user's.
inline constexpr std::string_view kKeyPrefix = "/";

}  // namespace unisono::store
