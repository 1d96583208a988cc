// A rank that crashes once it has its process group, as the argument says. Where the variable
// LIBRARIES is "missing", no library can be loaded any more; where it is "hang", that never ends.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "unisono/comm/process_group.h"

#include "support/process.h"

// In place of the C library's.
extern "C" [[gnu::visibility("default")]] void* dlopen(const char* file, int flags) {
  const char* const how = std::getenv("LIBRARIES");
  const std::string_view text = how == nullptr ? "" : how;
  if (text == "missing") {
    return nullptr;
  }
  while (text == "hang") {
    ::pause();
  }
  using Open = void* (*)(const char*, int);
  return reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "dlopen"))(file, flags);
}

namespace crash_program {

// The optimizer must not see what becomes of it.
template <class T>
T hide(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

struct Sample {
  std::array<int, 4> padding;
  int label;
};

inline int read_label(const volatile Sample* sample) {
  return sample->label;
}

[[gnu::noinline]] int use_null(const volatile Sample* sample) {
  return read_label(sample);
}

[[gnu::noinline]] void null_pointer() {
  std::exit(use_null(hide<const volatile Sample*>(nullptr)));
}

[[gnu::noinline]] int recurse(int depth) {
  std::array<volatile int, 16> frame{};
  frame[static_cast<std::size_t>(hide(depth) % 16)] = depth;
  return hide(depth) < 0 ? 0 : recurse(depth + 1) + frame[hide(0U)];
}

[[gnu::noinline]] void divide() {
  std::exit(hide(1) / hide(0));
}

[[gnu::noinline]] void jump_to_null() {
  hide<void (*)()>(nullptr)();
  hide(0);
}

[[gnu::noinline]] void illegal_instruction() {
#if defined(__x86_64__)
  asm volatile("ud2");
#elif defined(__aarch64__)
  asm volatile("udf #0");
#endif
}

// The unwinder itself can't read the stack.
[[gnu::noinline]] void lose_stack() {
#if defined(__x86_64__)
  asm volatile("mov $16, %rsp\n\tmov $16, %rbp\n\tmov (%rsp), %rax");
#endif
}

[[gnu::noinline]] void read_beyond_end() {
  const int fd = ::memfd_create("short", MFD_CLOEXEC);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  std::exit(*hide(static_cast<const volatile int*>(memory)));
}

[[gnu::noinline]] void give_up() {
  std::abort();
}

[[gnu::noinline]] void throw_uncaught() {
  throw std::runtime_error("the data set is empty");
}

void on_thread() {
  std::thread([] {
    ::pthread_setname_np(::pthread_self(), "loader");
    null_pointer();
  }).join();
}

// stderr becomes a pipe that is full and that nobody reads.
void stop_reader() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_NONBLOCK) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) {
    std::exit(90);
  }
  while (::write(STDERR_FILENO, "x", 1) == 1) {
  }
  ::fcntl(STDERR_FILENO, F_SETFL, 0);
}

void wait_for_signal() {
  unisono::test::print("ready\n");
  unisono::test::wait_for_end_of_stdin();
}

void own_handler(int /*number*/) {
  constexpr std::string_view kText = "own handler\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(7);
}

// After init_process_group().
const std::map<std::string, std::function<void()>> kWays{
    {"null", null_pointer},
    {"own-handler", null_pointer},
    {"abort", give_up},
    {"throw", throw_uncaught},
    {"bus", read_beyond_end},
    {"fpe", divide},
    {"ill", illegal_instruction},
    {"overflow", [] { std::exit(recurse(0)); }},
    {"jump", jump_to_null},
    {"lost-stack", lose_stack},
    {"thread", on_thread},
    {"wait", wait_for_signal},
    {"closed-stderr",
     [] {
       ::close(STDERR_FILENO);
       null_pointer();
     }},
    {"stopped-reader",
     [] {
       stop_reader();
       null_pointer();
     }},
};

}  // namespace crash_program

int main(int argc, char** argv) {
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const std::string way = argc > 1 ? argv[1] : "";
  if (way == "own-handler") {
    ::signal(SIGSEGV, crash_program::own_handler);
  }
  const auto group = unisono::init_process_group();
  crash_program::kWays.at(way)();
  return 0;
}
