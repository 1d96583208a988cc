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

/// An operation that a line of the script asks for: its memory, its handle, and what has to be in
/// memory when it has ended well.
class Call {
 public:
  /// Carries it out, or begins it ("async=1"). Throws what the group throws.
  void start(const Line& line, ProcessGroup& group);

  void wait() const { work_.wait(); }

  /// What is wrong after it has ended well; "" for nothing.
  [[nodiscard]] std::string find_wrong_values() const;

  /// The same of bytes that nobody may write, however it ended.
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
