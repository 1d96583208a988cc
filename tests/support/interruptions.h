#pragma once

#include "unisono/base/error.h"
#include "unisono/base/interruption.h"

namespace unisono::test {

/// Set by threads that are to end their waits.
inline thread_local bool is_interrupted = false;

/// While it lives, waits of such threads end with "somebody pressed a key".
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
