#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "unisono/base/crash_report.h"
#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/stack_trace.h"

namespace unisono {
namespace {

constexpr unsigned kChildSeconds = 6;
constexpr std::chrono::seconds kPatience{5};
// Numbers of innermost and outermost frames that are shown of a deep stack.
constexpr std::size_t kInner = 48;
constexpr std::size_t kOuter = 16;
// Names of template instances can fill pages.
constexpr std::size_t kMaxNameBytes = 1000;
constexpr std::size_t kMaxTextBytes = 1 << 18;

// A buffer that never grows: add_frame() truncates the text, so that fmt allocates no memory.
using Text = fmt::basic_memory_buffer<char, 1 << 20>;

Text headline;
Text stack_text;

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
    {SIGFPE, FPE_INTDIV, "an integer divided by zero, or the smallest one by -1"},
    {SIGFPE, FPE_INTOVF, "an integer has overflowed"},
    {SIGFPE, FPE_FLTDIV, "a floating-point number divided by zero"},
    {SIGFPE, FPE_FLTOVF, "a floating-point number is too large"},
    {SIGFPE, FPE_FLTUND, "a floating-point number is too small"},
    {SIGFPE, FPE_FLTRES, "a floating-point result is not exact"},
    {SIGFPE, FPE_FLTINV, "a floating-point operation is not valid"},
    {SIGILL, ILL_ILLOPC, "not an instruction of this processor"},
    {SIGILL, ILL_ILLOPN, "not an instruction of this processor"},
    {SIGILL, ILL_PRVOPC, "an instruction that only the kernel may use"},
}};

// Formats strings and integers, for which fmt allocates no memory.
template <class... T>
void add(Text& text, fmt::format_string<T...> format, T&&... arguments) {
  fmt::format_to(std::back_inserter(text), format, std::forward<T>(arguments)...);
}

void add_fault(Text& text, const siginfo_t& info, std::uintptr_t stack_pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const bool is_instruction = info.si_signo == SIGFPE || info.si_signo == SIGILL;
  add(text, "{} 0x{:x}: ", is_instruction ? "instruction at" : "address", address);
  const auto* const meaning =
      std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& row) {
        return row.signal_number == info.si_signo && row.code == info.si_code;
      });
  if (meaning == kMeanings.end()) {
    add(text, "code {}", info.si_code);
  } else {
    add(text, "{}", meaning->text);
  }
  // A push, or the first access to a new frame, touches addresses around the stack pointer.
  if (info.si_signo == SIGSEGV && stack_pointer != 0 && address + 4096 >= stack_pointer &&
      address < stack_pointer + (1 << 20)) {
    add(text, "; the stack has overflowed");
  }
}

void add_cause(Text& text, const siginfo_t& info, std::uintptr_t stack_pointer) {
  const bool is_sent =
      info.si_code == SI_USER || info.si_code == SI_TKILL || info.si_code == SI_QUEUE;
  if (is_sent && info.si_pid != ::getpid()) {
    add(text, "sent by process {}", info.si_pid);
  } else if (is_sent && info.si_signo == SIGABRT) {
    add(text, "abort(), as after a failed assertion or an uncaught exception");
  } else if (is_sent) {
    add(text, "sent by this process itself");
  } else if (info.si_signo == SIGSEGV && info.si_code == SI_KERNEL) {
    add(text, "an address that no memory can have, or an instruction that only the kernel may use");
  } else {
    add_fault(text, info, stack_pointer);
  }
}

struct Frame {
  const void* address = nullptr;
  CodePlace place;
  bool is_replaced = false;  // The file was replaced after loading.
  bool is_looked_up = false;
  // Output of addr2line: two lines, name and source, for each inlined function, innermost first,
  // and for the containing function. Empty if addr2line has failed.
  std::string_view names;
  bool has_source = false;
};

// Arguments of the child.
struct Command {
  std::array<const char*, kInner + kOuter + 5> arguments{"addr2line", "-afiC", "-e"};
  int output = -1;
};

// Runs in the child, which shares the memory of this process until execvpe().
int execute(void* argument) {
  const auto& command = *static_cast<const Command*>(argument);
  // A handler in the child would overwrite the alternate stack, which this process still uses.
  sigset_t all;
  ::sigfillset(&all);
  ::sigdelset(&all, SIGALRM);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  // The alarm ends a child that hangs in a file system; the parent waits until the child has called
  // exec.
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kChildSeconds);
  // No environment, because a variable may make elfutils download debug information.
  constexpr std::array<char*, 1> kEmptyEnvironment{nullptr};
  // A limit, because gigabytes of debug information must not take the memory of the other ranks.
  constexpr rlimit kMemory{.rlim_cur = 4UL << 30, .rlim_max = 4UL << 30};
  ::setrlimit(RLIMIT_AS, &kMemory);
  constexpr rlimit kNoCore{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &kNoCore);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(command.output, STDOUT_FILENO);
  if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    ::dup2(nowhere, STDERR_FILENO);
  }
  // binutils comes first: elfutils may find no lines in code of clang, which writes no index of
  // addresses.
  for (const char* const program : {"addr2line", "eu-addr2line"}) {
    ::execvpe(
        program, const_cast<char* const*>(command.arguments.data()), kEmptyEnvironment.data());
  }
  ::_exit(127);
}

// Runs the command and shrinks `output` to the bytes that the program writes. Returns false if the
// output is incomplete. The process ignores the child's SIGCHLD: see on_signal().
bool run(Command& command, std::span<char>& output, Deadline deadline) {
  const std::span<char> room = std::exchange(output, output.first(0));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return false;
  }
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  command.output = write_end.get();
  alignas(16) static std::array<std::byte, 1 << 16> stack;
  const pid_t child =
      ::clone(execute, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK, &command);
  write_end.reset();
  if (child < 0) {
    return false;
  }
  ssize_t n = 1;
  pollfd readable{.fd = read_end.get(), .events = POLLIN, .revents = 0};
  while (n > 0 && ::poll(&readable, 1, deadline.poll_timeout_ms()) > 0) {
    const std::span<char> rest = room.subspan(output.size());
    n = ::read(read_end.get(), rest.data(), rest.size());
    output = room.first(output.size() + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  return n == 0 && !output.empty() && output.size() < room.size();
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

// Resolves all frames in the file of the first frame. Consumes the part of `room` that holds the
// names. Returns false if a frame may lack names.
bool look_up_file(std::span<Frame> frames, std::span<char>& room, Deadline deadline) {
  static std::array<std::array<char, 20>, kInner + kOuter> offsets;
  const CodePlace& file = frames.front().place;
  Command command;
  command.arguments[3] = file.file;
  std::size_t n = 0;
  for (const Frame& frame : frames) {
    if (frame.place.file == file.file) {
      *fmt::format_to(offsets[n].data(), "0x{:x}", frame.place.offset) = '\0';
      command.arguments[4 + n] = offsets[n].data();
      ++n;
    }
  }
  std::span<char> output = room;
  const bool is_done = run(command, output, deadline);
  room = room.subspan(output.size());
  std::string_view text(output.data(), output.size());
  for (Frame& frame : frames) {
    if (frame.place.file == file.file) {
      take_line(text);  // Skips the offset.
      const std::size_t end = text.find("\n0x");
      frame.names = text.substr(0, end);
      frame.is_looked_up = true;
      text.remove_prefix(std::min(text.size(), frame.names.size() + 1));
    }
  }
  return is_done;
}

// Returns true if the file was replaced after loading; offsets then lead to other code. The
// comparison covers the first 4 KiB, which depend on the file's size and contain the linker's build
// id.
bool is_replaced(const CodePlace& place) {
  static std::array<char, 4096> bytes;
  const Fd file(::open(place.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    return errno == ENOENT;
  }
  const ssize_t n = ::read(file.get(), bytes.data(), bytes.size());
  return n > 0 && place.file_begin != nullptr &&
         ::memcmp(bytes.data(), place.file_begin, static_cast<std::size_t>(n)) != 0;
}

bool look_up(std::span<Frame> frames) {
  static std::array<char, 1 << 18> all_room;
  std::span<char> room = all_room;
  const Deadline deadline = Deadline::after(kPatience);
  bool is_done = true;
  for (; !frames.empty(); frames = frames.subspan(1)) {
    Frame& frame = frames.front();
    // The kernel's code is in no file.
    const bool has_file = frame.place.file != nullptr && ::strchr(frame.place.file, '/') != nullptr;
    frame.is_replaced = has_file && is_replaced(frame.place);
    if (has_file && !frame.is_replaced && !frame.is_looked_up) {
      is_done = look_up_file(frames, room, deadline) && is_done;
    }
  }
  return is_done;
}

// Returns the source position, such as "/src/train.cpp:12", to which elfutils adds a column. Empty
// for "??:0" and similar texts.
std::string_view source_of(std::string_view text) {
  text = text.substr(0, text.find(" (discriminator "));
  const bool is_known = !text.starts_with("??") && !text.ends_with(":?") && !text.ends_with(":0");
  return is_known ? text : "";
}

void add_frame(Text& text, std::size_t number, Frame& frame) {
  std::string_view names = frame.names;
  do {
    // The output of elfutils appends the caller of an inlined function.
    std::string_view name = take_line(names);
    name = name.substr(0, name.find(" inlined at "));
    const std::string_view source = source_of(take_line(names));
    const char* const symbol = frame.names.empty() ? exported_symbol(frame.address) : nullptr;
    name = symbol != nullptr ? symbol : name == "??" ? "" : name;
    add(text, "  #{} {}", number, name.substr(0, kMaxNameBytes));
    add(text, "{}{}", name.size() > kMaxNameBytes ? "..." : "", names.empty() ? "" : " (inlined)");
    if (!source.empty()) {
      add(text, " at {}\n", source);
      frame.has_source = true;
    } else if (frame.place.file == nullptr) {
      add(text, "{}, where there is no code\n", frame.address);
    } else {
      add(text, "{}{}(+0x{:x})", name.empty() ? "" : " in ", frame.place.file, frame.place.offset);
      add(text, "{}\n", frame.is_replaced ? ", a file that was replaced since" : "");
    }
  } while (!names.empty() && text.size() < kMaxTextBytes);
}

// Returns true for files of the system and of Python packages, which users do not rebuild with
// debug information.
bool is_others_file(std::string_view file) {
  return !file.starts_with('/') || file.starts_with("/usr/") || file.starts_with("/lib") ||
         file.find("/site-packages/") != std::string_view::npos;
}

// Adds a hint to build with -g that names the file of the user's innermost frame, unless that frame
// has a source.
void add_hint(Text& text, std::span<const Frame> frames) {
  const auto frame = std::find_if(frames.begin(), frames.end(), [](const Frame& candidate) {
    return candidate.place.file != nullptr && !is_others_file(candidate.place.file);
  });
  if (frame != frames.end() && !frame->has_source && !frame->is_replaced) {
    add(text, "  (to see files and lines of {}, build with -g)\n", frame->place.file);
  }
}

}  // namespace

std::string_view crash_headline(const char* name,
                                const siginfo_t& info,
                                std::uintptr_t stack_pointer) {
  Text& text = headline;
  text.clear();
  std::array<char, 16> thread{};
  ::prctl(PR_GET_NAME, thread.data());
  add(text, "[unisono {}] pid {} (thread {}): ", name, ::getpid(), thread.data());
  add(text, "SIG{} (", ::sigabbrev_np(info.si_signo));
  add_cause(text, info, stack_pointer);
  add(text, ")\n");
  return {text.data(), text.size()};
}

std::string_view crash_stack(std::span<void* const> stack) {
  static std::array<Frame, kInner + kOuter> shown;
  Text& text = stack_text;
  text.clear();
  const std::size_t n_left_out = stack.size() - std::min(stack.size(), shown.size());
  const std::span<Frame> frames = std::span(shown).first(stack.size() - n_left_out);
  const auto number = [&](std::size_t i) { return i < kInner ? i : i + n_left_out; };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    // A return address may already belong to the next function, so the lookup uses the byte before.
    const void* const address = static_cast<char*>(stack[number(i)]) - (i == 0 ? 0 : 1);
    frames[i] = Frame{};
    frames[i].address = address;
    frames[i].place = find_code(address);
  }
  const bool is_looked_up = look_up(frames);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (i == kInner && n_left_out > 0) {
      add(text, "  ({} frames left out)\n", n_left_out);
    }
    add_frame(text, number(i), frames[i]);
  }
  if (is_looked_up) {
    add_hint(text, frames);
  } else {
    add(text,
        "  (addr2line, of binutils or elfutils, has failed, or is not installed: "
        "addr2line -Cfie FILE OFFSET shows files and lines)\n");
  }
  return {text.data(), text.size()};
}

}  // namespace unisono
