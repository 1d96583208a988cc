#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/guarded_pages.h"

namespace unisono::engine {

/// A check, for later, that the buffer still holds what it does now: it throws
/// Error(kInvalidArgument) that begins with `who` if not. Reads the whole buffer both times, and
/// keeps it alive.
[[nodiscard]] std::function<void()> unchanged_check(const Buffer& buffer, std::string who);

/// Stands between a receive and its buffer until somebody waits for it: to find programs that look
/// at the buffer, or write to it, before they do. The message goes elsewhere meanwhile; what is in
/// the buffer reads as NaN, and whole pages of it are guarded.
class GuardedReceive {
 public:
  /// Fills the buffer with all ones. `who` is the receive, for messages.
  GuardedReceive(const Buffer& buffer, std::string who);

  /// Where the message is to go.
  [[nodiscard]] Buffer landing() const;

  /// After the message has come: puts it into the buffer. Throws Error(kInvalidArgument) afterwards
  /// if the buffer was touched before.
  void deliver();

 private:
  Buffer buffer_;
  std::string who_;
  std::shared_ptr<std::vector<std::byte>> memory_;
  std::optional<GuardedPages> pages_;
};

}  // namespace unisono::engine
