#pragma once

#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace unisono::attacks {

/// A buffer between guard bytes that no operation may write.
class GuardedMemory {
 public:
  /// Allocates private memory, or symmetric memory of `group` if `group` is not null.
  GuardedMemory(std::int64_t count, DType dtype, ProcessGroup* group);

  [[nodiscard]] const Buffer& buffer() const { return buffer_; }

  /// Returns true if the bytes before and after the buffer are unchanged.
  [[nodiscard]] bool is_intact() const;

 private:
  Buffer whole_;
  Buffer buffer_;
};

}  // namespace unisono::attacks
