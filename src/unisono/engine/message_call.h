#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/health/wait_id.h"

namespace unisono::engine {

/// As the rank to receive from: whoever sends first.
inline constexpr int kAnyRank = -1;

/// An asynchronous message's side towards its caller, who waits on it; it is told how the message
/// ends.
class MessageHandle {
 public:
  MessageHandle() = default;
  virtual ~MessageHandle() = default;
  MessageHandle(const MessageHandle&) = delete;
  MessageHandle& operator=(const MessageHandle&) = delete;
  MessageHandle(MessageHandle&&) = delete;
  MessageHandle& operator=(MessageHandle&&) = delete;

  /// The message begins; `id` names it among the rank's waits. Called first, before another thread
  /// knows of it.
  virtual void begin(const health::WaitId& id) = 0;

  /// Sets what the first wait for a message that ended well calls; what that throws, the wait
  /// throws.
  virtual void set_check(std::function<void()> check) = 0;

  /// Ends the message, with null for success, and for a receive with the rank that it came from.
  /// Once; without a lock.
  virtual void complete(int source, std::exception_ptr error) = 0;
};

/// One send or receive, as its caller asks for it. Arguments were checked.
struct MessageCall {
  bool is_send;
  int peer;  ///< The other rank; to receive from, also kAnyRank.
  int tag;
  const Buffer& buffer;
  const std::string& label;  ///< What the caller calls its buffer, for messages.
  std::chrono::milliseconds timeout = {};
  std::shared_ptr<MessageHandle> handle = nullptr;  ///< Of an asynchronous one.
};

}  // namespace unisono::engine
