#include "unisono/base/thread_stacks.h"

#include <errno.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/describe_address.h"
#include "unisono/base/interrupted.h"
#include "unisono/base/mutex.h"

namespace unisono {
namespace {

constexpr std::size_t kMaxFrames = 64;
constexpr long kPatienceNs = 250'000'000;

// Sample::wanted, while the handler is at work.
constexpr int kTaking = -1;

// What the handler fills in. Global, as signal handlers are.
struct Sample {
  // The thread that is to take it; 0: nobody. Who changes it from the thread's number, the thread
  // itself or a caller that gives up, decides which of them has been too late. The handler's store
  // of 0 (release) pairs with the load after the wait.
  std::atomic<int> wanted = 0;
  sem_t is_taken{};
  std::array<void*, kMaxFrames> frames{};
  int n_frames = 0;
  void* interrupted = nullptr;
};

Sample sample;

// One sample at a time.
Mutex sampling;
int sampling_signal UNISONO_GUARDED_BY(sampling) = 0;

int this_thread() {
  return static_cast<int>(::syscall(SYS_gettid));
}

// In the thread that is asked. backtrace() takes no memory once it has been called before.
void on_stack_signal(int /*number*/, siginfo_t* /*info*/, void* context) {
  const int old_errno = errno;
  int thread = this_thread();
  if (sample.wanted.compare_exchange_strong(thread, kTaking, std::memory_order_acquire)) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address.
    sample.interrupted = reinterpret_cast<void*>(interrupted_at(context).program_counter);
    sample.n_frames = ::backtrace(sample.frames.data(), static_cast<int>(kMaxFrames));
    sample.wanted.store(0, std::memory_order_release);
    ::sem_post(&sample.is_taken);
  }
  errno = old_errno;
}

bool is_ours(int signal_number) {
  struct sigaction current{};
  return signal_number != 0 && ::sigaction(signal_number, nullptr, &current) == 0 &&
         (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_stack_signal;
}

// To this thread, whose handler does nothing. An emulator takes handlers of signals that it can't
// send: in qemu's user mode those are the last two.
bool can_be_sent(int signal_number) {
  return ::syscall(SYS_tgkill, ::getpid(), this_thread(), signal_number) == 0;
}

// A signal that does nothing but this, or 0 when the program uses all of them. The handler stays:
// a signal that comes late must not end the process.
int install_stack_handler() {
  struct sigaction mine{};
  mine.sa_sigaction = on_stack_signal;
  mine.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigfillset(&mine.sa_mask);
  for (int number = SIGRTMAX; number >= SIGRTMIN; --number) {
    struct sigaction before{};
    if (::sigaction(number, nullptr, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 &&
        before.sa_handler == SIG_DFL && ::sigaction(number, &mine, &before) == 0) {
      if (can_be_sent(number)) {
        return number;
      }
      ::sigaction(number, &before, nullptr);
    }
  }
  return 0;
}

bool wait_for_sample(int thread) {
  timespec deadline{};
  ::clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_nsec += kPatienceNs;
  deadline.tv_sec += deadline.tv_nsec / 1'000'000'000;
  deadline.tv_nsec %= 1'000'000'000;
  int result = -1;
  do {
    result = ::sem_timedwait(&sample.is_taken, &deadline);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    return true;
  }
  if (sample.wanted.compare_exchange_strong(thread, 0, std::memory_order_acquire)) {
    return false;  // Nobody takes it any more.
  }
  while (::sem_wait(&sample.is_taken) != 0) {
  }
  return true;
}

std::vector<std::string> describe_sample() {
  const std::span taken = std::span(sample.frames).first(static_cast<std::size_t>(sample.n_frames));
  // Before it: the handler, and what called it.
  auto first = std::find(taken.begin(), taken.end(), sample.interrupted);
  first = first == taken.end() ? taken.begin() : first;
  std::vector<std::string> frames;
  for (auto frame = first; frame != taken.end(); ++frame) {
    // An address to return to may be that of the next function.
    const auto* const address = static_cast<const char*>(*frame);
    frames.push_back(describe_address(frame == first ? address : address - 1));
  }
  return frames;
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

// A thread that is only just leaving the handler of the stack before blocks them for a moment.
bool stays_blocked(int thread, int signal_number) {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int n_looks = 0; n_looks < 10; ++n_looks) {
    if (!is_blocked(thread, signal_number)) {
      return false;
    }
    ::nanosleep(&kPause, nullptr);
  }
  return true;
}

// Nothing if the thread has ended meanwhile: one that was joined is listed for a moment longer.
std::optional<ThreadStack> take_stack(int thread, int signal_number) {
  ThreadStack stack;
  stack.thread = thread;
  stack.name = read_line(fmt::format("/proc/self/task/{}/comm", thread), "");
  if (signal_number == 0) {
    stack.problem = "the program uses all of the real-time signals";
    return stack;
  }
  if (stays_blocked(thread, signal_number)) {
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
    (void)sample.wanted.load(std::memory_order_acquire);
    stack.frames = describe_sample();
  }
  return stack;
}

// Sorted: the first thread has the least number, but for one that began after they wrapped round.
std::vector<int> other_threads() {
  std::vector<int> threads;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::string name = entry.path().filename();
    int thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread != this_thread()) {
      threads.push_back(thread);
    }
  }
  std::sort(threads.begin(), threads.end());
  std::stable_partition(
      threads.begin(), threads.end(), [](int thread) { return thread == ::getpid(); });
  return threads;
}

}  // namespace

std::vector<ThreadStack> take_stacks(std::size_t max_threads) {
  const MutexLock lock(sampling);
  if (sampling_signal == 0) {
    ::sem_init(&sample.is_taken, 0, 0);
    // The first call loads a library, which a handler must not.
    std::array<void*, 1> frame{};
    (void)::backtrace(frame.data(), 1);
  }
  // A program that has taken the signal over in the meantime keeps it.
  if (!is_ours(sampling_signal)) {
    sampling_signal = install_stack_handler();
  }
  std::vector<ThreadStack> stacks;
  for (const int thread : other_threads()) {
    if (stacks.size() == max_threads) {
      break;
    }
    if (std::optional<ThreadStack> stack = take_stack(thread, sampling_signal)) {
      stacks.push_back(std::move(*stack));
    }
  }
  return stacks;
}

}  // namespace unisono
