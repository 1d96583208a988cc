#include "unisono/base/crash_report.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "unisono/base/crash/alternate_stack.h"
#include "unisono/base/crash/cause.h"
#include "unisono/base/crash/raw_stack.h"
#include "unisono/base/crash/safe_text.h"
#include "unisono/base/crash/stack_text.h"
#include "unisono/base/deadline.h"
#include "unisono/base/interrupted.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"

namespace unisono {
namespace {

constexpr std::array kSignals{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
constexpr std::chrono::seconds kHeadlinePatience{1};
constexpr std::chrono::seconds kChildPatience{5};
// More than a report takes.
constexpr std::chrono::seconds kOthersPatience{10};

constexpr std::string_view kSeveral = "several ranks";

// What the handler looks at. It takes the name that it finds; who changes it writes into the other
// place. Release there pairs with the handler's acquire.
std::array<std::array<char, 64>, 2> names;
std::atomic<std::size_t> current_name = 0;

Mutex installing;
bool is_installed UNISONO_GUARDED_BY(installing) = false;
std::uint64_t naming_thread UNISONO_GUARDED_BY(installing) = 0;

// The one report of a process: the thread that crashed first, and how far it has come. Only that
// thread touches the rest.
enum class Stage { kBegin, kStack, kEnd };
std::atomic<pid_t> reporting_thread = 0;
volatile Stage stage = Stage::kBegin;
int reported_signal = 0;
crash::SafeText headline;
crash::RawStack crash_stack;

pid_t this_thread_id() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void sleep_a_little() {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  ::nanosleep(&kPause, nullptr);
}

void restore_default(int number) {
  struct sigaction normal{};
  normal.sa_handler = SIG_DFL;
  ::sigaction(number, &normal, nullptr);
}

// Dies of it as soon as the handler returns: a core dump then shows what the thread was at.
void die_after_return(int number, siginfo_t* info) {
  restore_default(number);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), this_thread_id(), number, info) != 0) {
    ::syscall(SYS_tgkill, ::getpid(), this_thread_id(), number);
  }
}

[[noreturn]] void die_now(int number) {
  restore_default(number);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::syscall(SYS_tgkill, ::getpid(), this_thread_id(), number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::_exit(128 + number);  // Not reached.
}

int describe_stack_in_child(void* /*nothing*/) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : kSignals) {
    restore_default(number);
  }
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  bool is_written = false;
  try {
    const std::string text = crash::describe_stack(crash_stack, headline.view());
    is_written = crash::write_to_stderr(text, Deadline::after(kChildPatience));
  } catch (const std::exception&) {
    is_written = false;
  }
  ::_exit(is_written ? 0 : 1);
}

// A child of which nobody hears when it ends, and whose start nobody is told of. It has a stack of
// its own: this one may be small, as that of Python's faulthandler is. -1 where there is none.
pid_t start_child() {
  constexpr std::size_t kStackBytes = 1 << 20;
  void* const memory = ::mmap(
      nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    return -1;
  }
  return ::clone(
      describe_stack_in_child, static_cast<std::byte*>(memory) + kStackBytes, 0, nullptr);
}

bool has_succeeded(pid_t child, Deadline deadline) {
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG | __WALL);
    if (ended == child) {
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    if (ended < 0 && errno != EINTR) {
      return false;
    }
    if (deadline.has_passed()) {
      ::kill(child, SIGKILL);
      while (::waitpid(child, &status, __WALL) < 0 && errno == EINTR) {
      }
      return false;
    }
    sleep_a_little();
  }
}

void show_stack() {
  const pid_t child = start_child();
  if (child < 0 || !has_succeeded(child, Deadline::after(kChildPatience))) {
    crash::write_addresses(crash_stack, headline.view());
  }
}

void say_what_happened(const siginfo_t& info, const void* context) {
  std::array<char, 16> thread_name{};
  ::prctl(PR_GET_NAME, thread_name.data());
  const char* const name = names[current_name.load(std::memory_order_acquire)].data();
  headline.add("[unisono ").add(name).add("] pid ");
  headline.add_decimal(static_cast<std::uint64_t>(::getpid()));
  headline.add(" (thread ").add(thread_name.data()).add("): ");
  crash::add_cause(headline, info, interrupted_at(context).stack_pointer);
  headline.add("\n");
  crash::write_to_stderr(headline.view(), Deadline::after(kHeadlinePatience));
}

// The report itself has crashed, of a stack that was written over, say.
[[noreturn]] void give_up() {
  if (stage == Stage::kStack) {
    stage = Stage::kEnd;
    show_stack();
  }
  die_now(reported_signal);
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int old_errno = errno;
  const pid_t thread = this_thread_id();
  pid_t reporting = 0;
  if (reporting_thread.compare_exchange_strong(reporting, thread)) {
    reported_signal = number;
    say_what_happened(*info, context);
    stage = Stage::kStack;
    crash::take_stack(context, crash_stack);
    stage = Stage::kEnd;
    show_stack();
    die_after_return(number, info);
  } else if (reporting == thread) {
    give_up();
  } else {
    const Deadline deadline = Deadline::after(kOthersPatience);
    while (!deadline.has_passed()) {
      sleep_a_little();
    }
    die_now(number);
  }
  errno = old_errno;
}

// Sanitizers report crashes themselves.
bool has_sanitizer() {
  return ::dlsym(RTLD_DEFAULT, "__sanitizer_set_death_callback") != nullptr;
}

void install_handlers() {
  struct sigaction mine{};
  mine.sa_sigaction = on_signal;
  // What the report itself does wrong has to reach the handler; all else has to wait.
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

void set_name(std::string_view name) UNISONO_REQUIRES(installing) {
  const std::size_t current = current_name.load(std::memory_order_relaxed);
  if (name == names[current].data() || kSeveral == names[current].data()) {
    return;
  }
  const bool is_other_thread = naming_thread != 0 && naming_thread != this_thread_number();
  naming_thread = this_thread_number();
  std::array<char, 64>& place = names[1 - current];
  place = {};
  (is_other_thread ? kSeveral : name).copy(place.data(), place.size() - 1);
  current_name.store(1 - current, std::memory_order_release);
}

}  // namespace

void install_crash_reports(const std::string& name) {
  static const bool is_left_alone = has_sanitizer();
  if (is_left_alone) {
    return;
  }
  thread_local crash::AlternateStack alternate_stack;
  alternate_stack.give_to_this_thread();
  const MutexLock lock(installing);
  set_name(name);
  if (!is_installed) {
    crash::prepare_to_take_stacks();
    install_handlers();
    is_installed = true;
  }
}

}  // namespace unisono
