#include "unisono/base/crash/cause.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/crash/safe_text.h"

namespace unisono::crash {
namespace {

std::string cause_of(const siginfo_t& info, std::uintptr_t stack_pointer = 0x7f0000) {
  SafeText text;
  add_cause(text, info, stack_pointer);
  return std::string(text.view());
}

siginfo_t fault(int signal_number, int code, std::uintptr_t address) {
  siginfo_t info{};
  info.si_signo = signal_number;
  info.si_code = code;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address.
  info.si_addr = reinterpret_cast<void*>(address);
  return info;
}

siginfo_t sent(int signal_number, pid_t sender) {
  siginfo_t info{};
  info.si_signo = signal_number;
  info.si_code = SI_TKILL;
  info.si_pid = sender;
  return info;
}

TEST(CrashCause, SaysWhatTheProcessorHasFound) {
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x10)), "SIGSEGV (address 0x10: not mapped)");
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_ACCERR, 0xabc)),
            "SIGSEGV (address 0xabc: mapped, but not for such an access)");
  EXPECT_EQ(cause_of(fault(SIGBUS, BUS_ADRALN, 0x11)), "SIGBUS (address 0x11: wrongly aligned)");
  EXPECT_EQ(cause_of(fault(SIGFPE, FPE_FLTDIV, 0x400)),
            "SIGFPE (instruction at 0x400: a floating-point number divided by zero)");
  EXPECT_EQ(cause_of(fault(SIGILL, 77, 0x400)), "SIGILL (instruction at 0x400: code 77)");
  EXPECT_THAT(cause_of(fault(SIGSEGV, SI_KERNEL, 0)),
              ::testing::HasSubstr("an address that no memory can have"));
}

TEST(CrashCause, KnowsAStackThatHasOverflowed) {
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x7efff8)),
            "SIGSEGV (address 0x7efff8: not mapped; the stack has overflowed)");
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x7e0000)),
            "SIGSEGV (address 0x7e0000: not mapped)");
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x10), 0), "SIGSEGV (address 0x10: not mapped)");
}

TEST(CrashCause, SaysWhoHasSentTheSignal) {
  EXPECT_EQ(cause_of(sent(SIGSEGV, ::getpid() + 1)),
            "SIGSEGV (sent by process " + std::to_string(::getpid() + 1) + ")");
  EXPECT_EQ(cause_of(sent(SIGSEGV, ::getpid())), "SIGSEGV (sent by this process itself)");
  EXPECT_THAT(cause_of(sent(SIGABRT, ::getpid())), ::testing::StartsWith("SIGABRT (abort(), "));
}

TEST(SafeText, CutsWhatIsTooLong) {
  SafeText text;
  text.add(std::string(1000, 'x')).add_decimal(0).add_hex(0xfedcba9876543210);
  EXPECT_EQ(text.view(), std::string(1000, 'x') + "00xfedcba9876543210");
  text.add("12345678").add_decimal(18446744073709551615U);
  EXPECT_EQ(text.view().size(), 1024U);
}

}  // namespace
}  // namespace unisono::crash
