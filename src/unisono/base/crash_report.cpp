#include "unisono/base/crash_report.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/base/stack_trace.h"
#include "unisono/base/thread.h"

namespace unisono {
namespace {

constexpr std::array kSignals{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
constexpr std::chrono::seconds kWritePatience{1};
constexpr unsigned kReportSeconds = 12;
// `unisono run` repeats the last 20 lines of a rank that has failed.
constexpr std::ptrdiff_t kLongStack = 16;
constexpr const char* kSeveral = "several ranks";

// Release store, paired with the acquire load in the handler. Earlier names are not freed, because
// the handler may still read them.
std::atomic<const char*> current_name = "";

Mutex installing;
bool is_installed UNISONO_GUARDED_BY(installing) = false;
std::uint64_t naming_thread UNISONO_GUARDED_BY(installing) = 0;

// State of the single crash report of a process. The first thread that crashes becomes the
// reporting thread and owns the variables below.
std::atomic<pid_t> reporting_thread = 0;
siginfo_t* crash_info = nullptr;
void* crash_context = nullptr;
volatile int step = 0;

pid_t this_thread_id() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void change_mask(int how, int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::pthread_sigmask(how, &set, nullptr);
}

// Sends the signal to this thread again with the default action. The process ends as soon as the
// signal is unblocked.
void send_again(int number, siginfo_t* info) {
  ::signal(number, SIG_DFL);
  if (info == nullptr ||
      ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), this_thread_id(), number, info) != 0) {
    ::syscall(SYS_tgkill, ::getpid(), this_thread_id(), number);
  }
}

[[noreturn]] void die_now(int number) {
  send_again(number, nullptr);
  change_mask(SIG_UNBLOCK, number);
  ::_exit(128 + number);  // Not reached.
}

// Writes with a time limit: a reader that has stopped must not prevent the process from dying.
void write_to_stderr(std::string_view text) {
  constexpr std::size_t kPieceBytes = 4096;  // A writable pipe accepts 4 KiB at once.
  const Deadline deadline = Deadline::after(kWritePatience);
  pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  while (!text.empty() && ::poll(&writable, 1, deadline.poll_timeout_ms()) > 0) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), std::min(text.size(), kPieceBytes));
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
      return;
    }
    text.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
}

// Writes the report in steps. If the report itself crashes, the next call continues with the next
// step.
void report() {
  static std::string_view headline;
  static std::array<void*, 1 << 19> frames;  // Room for an overflowed stack of 8 MiB.
  const Interrupted at = interrupted_at(crash_context);
  if (step == 0) {
    step = 1;
    const char* const name = current_name.load(std::memory_order_acquire);
    headline = crash_headline(name, *crash_info, at.stack_pointer);
    write_to_stderr(headline);
  }
  std::span<void*> stack;
  if (step == 1) {
    step = 2;
    stack = take_stack(crash_context, frames);
  } else {
    // take_stack() has crashed while it wrote the frame after these.
    const auto end = std::find(frames.begin(), frames.end(), nullptr);
    stack = {std::find(frames.begin(), end, at.program_counter), end};
  }
  if (step == 2) {
    step = 3;
    const std::string_view text = crash_stack(stack);
    write_to_stderr(text);
    if (std::count(text.begin(), text.end(), '\n') > kLongStack) {
      write_to_stderr(headline);
    }
  }
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int old_errno = errno;
  pid_t reporting = 0;
  if (reporting_thread.compare_exchange_strong(reporting, this_thread_id())) {
    crash_info = info;
    crash_context = context;
    // The alarm ends the process even if the report waits for a lock, such as the lock of the
    // dynamic loader.
    ::signal(SIGALRM, SIG_IGN);  // Discards a pending signal of the program's own timer.
    ::alarm(kReportSeconds);
    ::signal(SIGALRM, [](int /*number*/) { die_now(crash_info->si_signo); });
    change_mask(SIG_UNBLOCK, SIGALRM);
    ::signal(SIGCHLD, SIG_DFL);  // A handler of the program could wait for the report's child.
    report();
    // The signal is delivered after the handler returns, at the crashed instruction, so that the
    // core dump shows that place.
    change_mask(SIG_BLOCK, number);
    send_again(number, info);
  } else if (reporting == this_thread_id()) {
    report();
    die_now(crash_info->si_signo);
  } else {
    constexpr timespec kReportTime{.tv_sec = kReportSeconds, .tv_nsec = 0};
    ::nanosleep(&kReportTime, nullptr);
    die_now(number);
  }
  errno = old_errno;
}

void install_handlers() {
  struct sigaction mine{};
  mine.sa_sigaction = on_signal;
  // SA_NODEFER: a crash of the report itself reaches the handler. All other signals are blocked
  // meanwhile.
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigfillset(&mine.sa_mask);
  for (const int number : kSignals) {
    sigdelset(&mine.sa_mask, number);
  }
  for (const int number : kSignals) {
    struct sigaction current{};
    if (::sigaction(number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
        current.sa_handler == SIG_DFL) {
      ::sigaction(number, &mine, nullptr);
    }
  }
}

struct ReturnStack {
  void operator()(std::byte* memory) const {
    stack_t current{};
    if (::sigaltstack(nullptr, &current) == 0 && current.ss_sp == memory) {
      const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
      ::sigaltstack(&none, nullptr);
    }
    delete[] memory;
  }
};

// Returns an alternate signal stack, which this thread's handlers use until the stack is destroyed.
// Returns null if the thread already has an alternate stack.
std::unique_ptr<std::byte[], ReturnStack> make_alternate_stack() {
  constexpr std::size_t kBytes = 1 << 18;
  stack_t current{};
  if (::sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) {
    return nullptr;
  }
  std::unique_ptr<std::byte[], ReturnStack> memory(new std::byte[kBytes]);
  const stack_t mine{.ss_sp = memory.get(), .ss_flags = 0, .ss_size = kBytes};
  ::sigaltstack(&mine, nullptr);
  return memory;
}

}  // namespace

void install_crash_reports(const std::string& name) {
  // Sanitizers report crashes themselves.
  if (::dlsym(RTLD_DEFAULT, "__sanitizer_set_death_callback") != nullptr) {
    return;
  }
  thread_local const auto alternate_stack = make_alternate_stack();
  const MutexLock lock(installing);
  const std::string_view current = current_name.load(std::memory_order_relaxed);
  if (name != current && current != kSeveral) {
    const bool is_other_thread = naming_thread != 0 && naming_thread != this_thread_number();
    naming_thread = this_thread_number();
    // Never freed, because a handler may read the name at any time.
    const char* const own = is_other_thread ? kSeveral : ::strdup(name.substr(0, 64).c_str());
    current_name.store(own == nullptr ? "" : own, std::memory_order_release);
  }
  if (!is_installed) {
    prepare_stack_traces();
    install_handlers();
    is_installed = true;
  }
}

}  // namespace unisono
