#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/engine/wait_id.h"

namespace unisono::engine {

/// As the rank to receive from: whoever sends first.
inline constexpr int kAnyRank = -1;

/// What the caller of an asynchronous message holds of it, and who hears how it ends.
class MessageHandle {
 public:
  MessageHandle() = default;
  virtual ~MessageHandle() = default;
  MessageHandle(const MessageHandle&) = delete;
  MessageHandle& operator=(const MessageHandle&) = delete;
  MessageHandle(MessageHandle&&) = delete;
  MessageHandle& operator=(MessageHandle&&) = delete;

  /// The message begins: which of the rank's waits it is. First of all, before another thread
  /// knows of it.
  virtual void begin(const WaitId& id) = 0;

  /// What is called when somebody first hears that the message has ended well; what it throws, that
  /// one hears.
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
