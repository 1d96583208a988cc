#pragma once

#include <functional>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "attacks/script/guarded_memory.h"
#include "attacks/script/line.h"

namespace unisono::attacks {

/// An operation that a line of the script requests: its memory, its handle, and the expected memory
/// after success.
class Call {
 public:
  /// Executes or starts ("async=1") the operation. Throws the errors of the group.
  void start(const Line& line, ProcessGroup& group);

  void wait() const { work_.wait(); }

  /// Describes wrong values after success; "" if all values are right.
  [[nodiscard]] std::string find_wrong_values() const;

  /// Describes changes of bytes that no operation may write; "" if there are no changes. Valid
  /// after success and failure.
  [[nodiscard]] std::string find_wrong_guards() const;

 private:
  friend class CallMaker;

  struct Expectation {
    std::string what;
    std::function<bool()> is_met;
  };

  std::vector<GuardedMemory> memory_;
  std::vector<Expectation> expectations_;
  Work work_;
};

}  // namespace unisono::attacks
