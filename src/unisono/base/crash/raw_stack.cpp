#include "unisono/base/crash/raw_stack.h"

#include <execinfo.h>
#include <ucontext.h>
#include <unwind.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "unisono/base/crash/memory_map.h"
#include "unisono/base/interrupted.h"

namespace unisono::crash {
namespace {

// A stack that was written over may have a circle.
constexpr std::size_t kMostFrames = 1'000'000;

struct Walk {
  RawStack& stack;
  std::uintptr_t first;
  bool has_begun;
};

_Unwind_Reason_Code on_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int is_exact = 0;
  const std::uintptr_t address = _Unwind_GetIPInfo(context, &is_exact);
  walk.has_begun = walk.has_begun || address == walk.first;
  if (address == 0 || walk.stack.n_frames() == kMostFrames) {
    return _URC_END_OF_STACK;
  }
  if (walk.has_begun) {
    // An address to return to may be that of the next function.
    walk.stack.add(is_exact != 0 ? address : address - 1);
  }
  return _URC_NO_REASON;
}

bool is_code(std::uintptr_t address) {
  Mapping mapping;
  return find_mapping(address, mapping) && mapping.is_executable;
}

// Makes the context that of the call, for the unwinder knows no frame without code. True if it
// could.
bool return_to_caller([[maybe_unused]] ucontext_t& context) {
#if defined(__x86_64__)
  auto& registers = context.uc_mcontext.gregs;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address.
  registers[REG_RIP] = *reinterpret_cast<const greg_t*>(registers[REG_RSP]) - 1;
  registers[REG_RSP] += static_cast<greg_t>(sizeof(greg_t));
  return true;
#elif defined(__aarch64__)
  context.uc_mcontext.pc = context.uc_mcontext.regs[30] - 1;
  return true;
#else
  return false;
#endif
}

void walk(const ucontext_t& context, RawStack& stack) {
  const std::size_t n_before = stack.n_frames();
  Walk from_there{
      .stack = stack, .first = interrupted_at(&context).program_counter, .has_begun = false};
  _Unwind_Backtrace(on_frame, &from_there);
  if (stack.n_frames() == n_before) {
    // Better with the handler than not at all.
    Walk from_here{.stack = stack, .first = 0, .has_begun = true};
    _Unwind_Backtrace(on_frame, &from_here);
  }
}

}  // namespace

void prepare_to_take_stacks() {
  std::array<void*, 1> frame{};
  (void)::backtrace(frame.data(), 1);
}

void take_stack(void* context, RawStack& stack) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  const std::uintptr_t address = interrupted_at(context).program_counter;
  if (is_code(address)) {
    walk(interrupted, stack);
    return;
  }
  stack.add(address);
  const mcontext_t former = interrupted.uc_mcontext;
  if (return_to_caller(interrupted)) {
    walk(interrupted, stack);
    interrupted.uc_mcontext = former;
  }
}

}  // namespace unisono::crash
