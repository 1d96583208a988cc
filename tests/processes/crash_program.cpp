// A rank that crashes after init_process_group(), in the way that the argument names.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "unisono/comm/process_group.h"

#include "support/process.h"

namespace crash_program {

// Hides the value from the optimizer.
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

[[gnu::noinline]] void jump_to_number() {
  hide(reinterpret_cast<void (*)()>(std::uintptr_t{0x1234}))();  // NOLINT: the crash is meant.
  hide(0);
}

// Code that is generated at run time has no information for the unwinder.
[[gnu::noinline]] void run_generated_code() {
  constexpr std::size_t kBytes = 4096;
  void* const code = ::mmap(
      nullptr, kBytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#if defined(__x86_64__)
  constexpr std::array<unsigned char, 4> kCode{0x6a, 0x00, 0x0f, 0x0b};  // push 0; ud2
#else
  constexpr std::array<unsigned char, 4> kCode{0x00, 0x00, 0x00, 0x00};  // udf
#endif
  ::memcpy(code, kCode.data(), kCode.size());
  __builtin___clear_cache(static_cast<char*>(code), static_cast<char*>(code) + kBytes);
  hide(reinterpret_cast<void (*)()>(code))();
  hide(0);
}

[[gnu::noinline]] void illegal_instruction() {
#if defined(__x86_64__)
  asm volatile("ud2");
#elif defined(__aarch64__)
  asm volatile("udf #0");
#endif
}

// The unwinder can't read the stack either.
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

// Makes stderr a full pipe without a reader.
void stop_reader() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_NONBLOCK) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) {
    std::exit(90);
  }
  while (::write(STDERR_FILENO, "x", 1) == 1) {
  }
  ::fcntl(STDERR_FILENO, F_SETFL, 0);
}

// The C library aborts in malloc() while the lock of the heap is held.
[[gnu::noinline]] void corrupt_heap() {
  auto* const memory = hide(static_cast<volatile char*>(std::malloc(24)));
  for (std::size_t i = 0; i < 4096; ++i) {
    memory[i] = 0x7f;
  }
  hide(std::malloc(1 << 16));
}

void crash_on_all_threads() {
  std::latch start(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&start] {
      start.arrive_and_wait();
      null_pointer();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void crash_in_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    null_pointer();
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::_exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

// Another thread holds the dynamic loader's lock while the thread reads from an empty pipe.
void crash_beside_loader() {
  const char* const folder = std::getenv("FOLDER");
  const std::string pipe = std::string(folder == nullptr ? "." : folder) + "/pipe";
  ::mkfifo(pipe.c_str(), 0600);
  std::thread([pipe] { ::dlopen(pipe.c_str(), RTLD_NOW); }).detach();
  while (::open(pipe.c_str(), O_WRONLY | O_NONBLOCK) < 0) {
  }
  null_pointer();
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

// Crashes to run after init_process_group(), by the name of the argument.
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
    {"wild", jump_to_number},
    {"generated", run_generated_code},
    {"lost-stack", lose_stack},
    {"thread", on_thread},
    {"wait", wait_for_signal},
    {"corrupt-heap", corrupt_heap},
    {"all-threads", crash_on_all_threads},
    {"child", crash_in_child},
    {"beside-loader", crash_beside_loader},
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
