#include "unisono/base/crash/alternate_stack.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace unisono::crash {
namespace {

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

AlternateStack::~AlternateStack() {
  stack_t current{};
  if (memory_ != MAP_FAILED && ::sigaltstack(nullptr, &current) == 0 && current.ss_sp == usable()) {
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    ::sigaltstack(&none, nullptr);
    ::munmap(memory_, kBytes);
  }
}

void AlternateStack::give_to_this_thread() {
  stack_t current{};
  if (::sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) {
    return;
  }
  if (memory_ == MAP_FAILED) {
    memory_ = ::mmap(nullptr,
                     kBytes,
                     PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK,
                     -1,
                     0);
  }
  if (memory_ == MAP_FAILED) {
    return;
  }
  ::mprotect(memory_, page_bytes(), PROT_NONE);
  const stack_t mine{.ss_sp = usable(), .ss_flags = 0, .ss_size = kBytes - page_bytes()};
  ::sigaltstack(&mine, nullptr);
}

void* AlternateStack::usable() const {
  return static_cast<std::byte*>(memory_) + page_bytes();
}

}  // namespace unisono::crash
