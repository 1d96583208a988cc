#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/guarded_pages.h"

namespace unisono::engine {

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
