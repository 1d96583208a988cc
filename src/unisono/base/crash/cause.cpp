#include "unisono/base/crash/cause.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "unisono/base/crash/safe_text.h"

namespace unisono::crash {
namespace {

struct Meaning {
  int signal_number;
  int code;
  std::string_view text;
};

constexpr std::array<Meaning, 18> kMeanings{{
    {SIGSEGV, SEGV_MAPERR, "not mapped"},
    {SIGSEGV, SEGV_ACCERR, "mapped, but not for such an access"},
    {SIGSEGV, SEGV_PKUERR, "protected by a key"},
    {SIGBUS, BUS_ADRALN, "wrongly aligned"},
    {SIGBUS, BUS_ADRERR, "beyond the end of its file, or there is no memory for it"},
    {SIGBUS, BUS_OBJERR, "the hardware could not read it"},
    {SIGBUS, BUS_MCEERR_AR, "the memory there is broken"},
    {SIGBUS, BUS_MCEERR_AO, "the memory there is broken"},
    {SIGFPE, FPE_INTDIV, "an integer divided by zero, or the least one by -1"},
    {SIGFPE, FPE_INTOVF, "an integer has overflowed"},
    {SIGFPE, FPE_FLTDIV, "a floating-point number divided by zero"},
    {SIGFPE, FPE_FLTOVF, "a floating-point number is too large"},
    {SIGFPE, FPE_FLTUND, "a floating-point number is too small"},
    {SIGFPE, FPE_FLTRES, "a floating-point result is not exact"},
    {SIGFPE, FPE_FLTINV, "a floating-point operation is not valid"},
    {SIGILL, ILL_ILLOPC, "no instruction of this processor"},
    {SIGILL, ILL_ILLOPN, "no instruction of this processor"},
    {SIGILL, ILL_PRVOPC, "an instruction that only the kernel may use"},
}};

std::string_view name_of(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return "a signal";
  }
}

// Not by the processor, so that there is no address.
bool was_sent(const siginfo_t& info) {
  return info.si_code == SI_USER || info.si_code == SI_TKILL || info.si_code == SI_QUEUE;
}

void add_sender(SafeText& text, const siginfo_t& info) {
  const auto sender = static_cast<std::uint64_t>(info.si_pid);
  if (info.si_pid != ::getpid()) {
    text.add("sent by process ").add_decimal(sender);
  } else if (info.si_signo == SIGABRT) {
    text.add("abort(), as after a failed assertion or an exception that nobody caught");
  } else {
    text.add("sent by this process itself");
  }
}

// What a push or the first touch of a new frame reaches lies around the stack pointer.
bool is_at_stack_pointer(std::uintptr_t address, std::uintptr_t stack_pointer) {
  constexpr std::uintptr_t kBelow = 4096;
  constexpr std::uintptr_t kAbove = 1 << 20;
  return stack_pointer != 0 && address + kBelow >= stack_pointer &&
         address < stack_pointer + kAbove;
}

void add_address(SafeText& text, const siginfo_t& info, std::uintptr_t stack_pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const auto* const meaning =
      std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& known) {
        return known.signal_number == info.si_signo && known.code == info.si_code;
      });
  text.add(info.si_signo == SIGFPE || info.si_signo == SIGILL ? "instruction at " : "address ");
  text.add_hex(address).add(": ");
  if (meaning == kMeanings.end()) {
    text.add("code ").add_decimal(static_cast<std::uint64_t>(info.si_code));
  } else {
    text.add(meaning->text);
  }
  if (info.si_signo == SIGSEGV && is_at_stack_pointer(address, stack_pointer)) {
    text.add("; the stack has overflowed");
  }
}

}  // namespace

void add_cause(SafeText& text, const siginfo_t& info, std::uintptr_t stack_pointer) {
  text.add(name_of(info.si_signo)).add(" (");
  if (was_sent(info)) {
    add_sender(text, info);
  } else if (info.si_signo == SIGSEGV && info.si_code == SI_KERNEL) {
    text.add("an address that no memory can have, or an instruction that only the kernel may use");
  } else {
    add_address(text, info, stack_pointer);
  }
  text.add(")");
}

}  // namespace unisono::crash
