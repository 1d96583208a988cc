#pragma once

#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace unisono::attacks {

/// A buffer between bytes that nobody may write.
class GuardedMemory {
 public:
  /// Private memory, or symmetric memory of `group`, if that is not null.
  GuardedMemory(std::int64_t count, DType dtype, ProcessGroup* group);

  [[nodiscard]] const Buffer& buffer() const { return buffer_; }

  /// Whether the bytes before and behind are as they were.
  [[nodiscard]] bool is_intact() const;

 private:
  Buffer whole_;
  Buffer buffer_;
};

}  // namespace unisono::attacks
