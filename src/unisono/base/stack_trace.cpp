#include "unisono/base/stack_trace.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

namespace unisono {
namespace {

// Changes the context to the call instruction that led to the interrupted address.
void return_to_caller([[maybe_unused]] ucontext_t& context) {
#if defined(__x86_64__)
  auto& registers = context.uc_mcontext.gregs;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a register holds the address.
  registers[REG_RIP] = *reinterpret_cast<const greg_t*>(registers[REG_RSP]) - 1;
  registers[REG_RSP] += static_cast<greg_t>(sizeof(greg_t));
#elif defined(__aarch64__)
  context.uc_mcontext.pc = context.uc_mcontext.regs[30] - 1;
#endif
}

// Returns true if a jump to an address without code caused the signal.
bool has_jumped([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  constexpr greg_t kPageFault = 14;
  const auto& registers = context.uc_mcontext.gregs;
  return registers[REG_TRAPNO] == kPageFault && registers[REG_CR2] == registers[REG_RIP];
#elif defined(__aarch64__)
  return context.uc_mcontext.fault_address == context.uc_mcontext.pc;
#else
  return false;
#endif
}

// Returns the frames from `first` on, without the frames of the signal handler.
std::span<void*> walk(std::span<void*> room, const void* first) {
  const int n = ::backtrace(room.data(), static_cast<int>(room.size()));
  const std::span<void*> frames = room.first(static_cast<std::size_t>(n));
  const auto found = std::find(frames.begin(), frames.end(), first);
  return frames.subspan(static_cast<std::size_t>(found - frames.begin()));
}

// Returns the path of the program. The dynamic loader reports an empty path for the program itself.
const std::string& program_file() {
  std::error_code ignored;
  static const std::string file = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  return file;
}

struct Search {
  std::uintptr_t address;
  CodePlace place;
};

// Returns 1, which ends the iteration, if the file of `info` contains the address.
int visit(dl_phdr_info* info, std::size_t /*size*/, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const std::uintptr_t offset = search.address - info->dlpi_addr;
  const bool is_program = info->dlpi_name == nullptr || *info->dlpi_name == '\0';
  search.place.file_begin = nullptr;
  for (const auto& part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    if (part.p_type == PT_LOAD && part.p_offset == 0) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader has addresses as numbers.
      search.place.file_begin = reinterpret_cast<const void*>(info->dlpi_addr + part.p_vaddr);
    }
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 &&
        offset - part.p_vaddr < part.p_memsz) {
      search.place.file = is_program ? program_file().c_str() : info->dlpi_name;
      search.place.offset = offset;
      return 1;
    }
  }
  return 0;
}

}  // namespace

Interrupted interrupted_at([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a register holds the address.
  return {.program_counter = reinterpret_cast<void*>(registers[REG_RIP]),
          .stack_pointer = static_cast<std::uintptr_t>(registers[REG_RSP])};
#elif defined(__aarch64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a register holds the address.
  return {.program_counter = reinterpret_cast<void*>(registers.pc), .stack_pointer = registers.sp};
#else
  return {};
#endif
}

void prepare_stack_traces() {
  (void)program_file();
  std::array<void*, 1> frame{};
  (void)::backtrace(frame.data(), 1);
}

std::span<void*> take_stack(void* context, std::span<void*> room) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  void* const address = interrupted_at(context).program_counter;
  if (has_jumped(interrupted)) {
    // The unwinder would read memory at the invalid address, so unwinding starts at the caller.
    // Most such jumps are calls.
    const mcontext_t former = interrupted.uc_mcontext;
    return_to_caller(interrupted);
    const std::span<void*> frames = walk(room.subspan(1), interrupted_at(context).program_counter);
    interrupted.uc_mcontext = former;
    void** const first = frames.data() - 1;
    *first = address;
    return {first, frames.size() + 1};
  }
  const std::span<void*> frames = walk(room, address);
  if (!frames.empty()) {
    return frames;
  }
  // The unwinder has no information for code that is generated at run time.
  room.front() = address;
  return room.first(1);
}

CodePlace find_code(const void* address) {
  Search search{.address = reinterpret_cast<std::uintptr_t>(address), .place = {}};
  ::dl_iterate_phdr(visit, &search);
  return search.place.file == nullptr ? CodePlace() : search.place;
}

const char* exported_symbol(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) == 0 ? nullptr : info.dli_sname;
}

namespace {

constexpr std::chrono::milliseconds kSamplePatience{250};
constexpr std::chrono::microseconds kPause{100};

// Value of Sample::wanted while the handler runs.
constexpr int kTaking = -1;

// Result of the handler. A global, because signal handlers have no argument for user data.
struct Sample {
  // Number of the thread that must take the sample; 0 if no sample is requested. The sampled thread
  // and a caller that stops waiting both try to replace the number; the first succeeds. The
  // handler's store of 0 (release) pairs with the load in wait_for_sample().
  std::atomic<int> wanted = 0;
  std::array<void*, 64> room{};
  std::span<void*> frames;
};

Sample sample;

// Protects the sample and the signal.
Mutex sampling;
int sampling_signal UNISONO_GUARDED_BY(sampling) = 0;

int this_thread() {
  return static_cast<int>(::syscall(SYS_gettid));
}

// Runs in the sampled thread.
void on_stack_signal(int /*number*/, siginfo_t* /*info*/, void* context) {
  const int old_errno = errno;
  int thread = this_thread();
  if (sample.wanted.compare_exchange_strong(thread, kTaking, std::memory_order_acquire)) {
    sample.frames = take_stack(context, sample.room);
    sample.wanted.store(0, std::memory_order_release);
  }
  errno = old_errno;
}

bool is_ours(int signal_number) {
  struct sigaction current{};
  return signal_number != 0 && ::sigaction(signal_number, nullptr, &current) == 0 &&
         (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_stack_signal;
}

// Returns a signal that has no other handler, or 0 if the program uses all of them. The handler
// stays installed, because a late signal must not end the process.
int install_stack_handler() {
  struct sigaction mine{};
  mine.sa_sigaction = on_stack_signal;
  // SA_NODEFER: the handler blocks no signal. Otherwise is_blocked() could observe a thread that is
  // still leaving the handler.
  mine.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  for (int number = SIGRTMAX; number >= SIGRTMIN; --number) {
    struct sigaction before{};
    if (::sigaction(number, nullptr, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 &&
        before.sa_handler == SIG_DFL && ::sigaction(number, &mine, &before) == 0) {
      // qemu's user mode accepts handlers for two signals that cannot be sent.
      if (::syscall(SYS_tgkill, ::getpid(), this_thread(), number) == 0) {
        return number;
      }
      ::sigaction(number, &before, nullptr);
    }
  }
  return 0;
}

bool wait_for_sample(int thread) {
  const Deadline deadline = Deadline::after(kSamplePatience);
  while (sample.wanted.load(std::memory_order_acquire) != 0) {
    int expected = thread;
    if (deadline.has_passed() && sample.wanted.compare_exchange_strong(expected, 0)) {
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// Returns a description such as "train(int) in /opt/job/train(+0x1a2b)". Names the function only if
// it is exported.
std::string describe_code(const void* address) {
  const CodePlace place = find_code(address);
  if (place.file == nullptr) {
    return fmt::format("{}", address);
  }
  std::string text = fmt::format("{}(+0x{:x})", place.file, place.offset);
  const char* const symbol = exported_symbol(address);
  if (symbol == nullptr) {
    return text;
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return fmt::format("{} in {}", demangled == nullptr ? symbol : demangled.get(), text);
}

std::string read_line(const std::string& path, std::string_view prefix) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(prefix)) {
      return line.substr(prefix.size());
    }
  }
  return "";
}

bool is_blocked(int thread, int signal_number) {
  const std::string mask = read_line(fmt::format("/proc/self/task/{}/status", thread), "SigBlk:\t");
  std::uint64_t bits = 0;
  std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
  return (bits >> static_cast<unsigned>(signal_number - 1) & 1U) != 0;
}

// Returns std::nullopt if the thread has ended: the kernel lists a joined thread for a moment
// longer.
std::optional<ThreadStack> take_stack_of(int thread, int signal_number) {
  ThreadStack stack;
  stack.thread = thread;
  stack.name = read_line(fmt::format("/proc/self/task/{}/comm", thread), "");
  if (signal_number == 0) {
    stack.problem = "the program uses all of the real-time signals";
    return stack;
  }
  if (is_blocked(thread, signal_number)) {
    stack.problem = "it blocks signals";
    return stack;
  }
  sample.wanted.store(thread, std::memory_order_release);
  if (::syscall(SYS_tgkill, ::getpid(), thread, signal_number) != 0) {
    sample.wanted.store(0, std::memory_order_relaxed);
    if (errno == ESRCH) {
      return std::nullopt;
    }
    stack.problem = std::generic_category().message(errno);
  } else if (!wait_for_sample(thread)) {
    stack.problem = "it does not take signals now";
  } else {
    for (const void* const frame : sample.frames) {
      // A return address may already belong to the next function, so the lookup uses the byte
      // before.
      const bool is_first = stack.frames.empty();
      stack.frames.push_back(describe_code(static_cast<const char*>(frame) - (is_first ? 0 : 1)));
    }
  }
  return stack;
}

// Returns the other threads of the process. The main thread (its number is the pid) comes first.
std::vector<int> other_threads() {
  std::vector<int> threads;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const int thread = std::stoi(entry.path().filename());
    if (thread != this_thread()) {
      threads.push_back(thread);
    }
  }
  std::sort(threads.begin(), threads.end(), [](int a, int b) {
    return std::pair(a != ::getpid(), a) < std::pair(b != ::getpid(), b);
  });
  return threads;
}

}  // namespace

std::vector<ThreadStack> take_stacks(std::size_t max_threads) {
  const MutexLock lock(sampling);
  prepare_stack_traces();
  // A program that has installed a handler for the signal in the meantime keeps the signal.
  if (!is_ours(sampling_signal)) {
    sampling_signal = install_stack_handler();
  }
  std::vector<ThreadStack> stacks;
  for (const int thread : other_threads()) {
    if (stacks.size() == max_threads) {
      break;
    }
    if (std::optional<ThreadStack> stack = take_stack_of(thread, sampling_signal)) {
      stacks.push_back(std::move(*stack));
    }
  }
  return stacks;
}

}  // namespace unisono
