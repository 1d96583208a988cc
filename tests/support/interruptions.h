#pragma once

#include "unisono/base/error.h"
#include "unisono/base/thread.h"

namespace unisono::test {

/// Threads set this flag to interrupt their own waits.
inline thread_local bool is_interrupted = false;

/// During the object's lifetime, waits of threads with the flag end with "somebody pressed a key".
class Interruptions {
 public:
  Interruptions() {
    set_interruption_check([] {
      if (is_interrupted) {
        throw Error(ErrorCode::kInterrupted, "somebody pressed a key");
      }
    });
  }

  ~Interruptions() { set_interruption_check(nullptr); }

  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  Interruptions(Interruptions&&) = delete;
  Interruptions& operator=(Interruptions&&) = delete;
};

}  // namespace unisono::test
