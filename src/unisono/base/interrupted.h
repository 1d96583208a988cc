#pragma once

#include <ucontext.h>

#include <cstdint>

namespace unisono {

/// Where a thread was when it got a signal, as the handler's third argument says.
struct Interrupted {
  std::uintptr_t program_counter = 0;  ///< 0 where it isn't known.
  std::uintptr_t stack_pointer = 0;    ///< 0 where it isn't known.
};

inline Interrupted interrupted_at([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return {.program_counter = static_cast<std::uintptr_t>(registers[REG_RIP]),
          .stack_pointer = static_cast<std::uintptr_t>(registers[REG_RSP])};
#elif defined(__aarch64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
  return {.program_counter = registers.pc, .stack_pointer = registers.sp};
#else
  return {};
#endif
}

}  // namespace unisono
