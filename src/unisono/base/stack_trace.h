#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono {

/// Registers of a thread that a signal has interrupted; 0 if unknown.
struct Interrupted {
  void* program_counter = nullptr;
  std::uintptr_t stack_pointer = 0;
};

/// Returns the registers. `context` is the third argument of the signal handler.
[[nodiscard]] Interrupted interrupted_at(const void* context);

/// Loads the libraries that the functions below need, because a signal handler must not load
/// libraries.
void prepare_stack_traces();

/// Returns the stack that a signal has interrupted, innermost frame first, in `room`. The first
/// address is the interrupted instruction; the others are return addresses. After a jump to an
/// address without code, the jumping function follows that address.
///
/// Only the handler of the signal may call this function; `context` is the third argument of the
/// handler. Allocates no memory.
[[nodiscard]] std::span<void*> take_stack(void* context, std::span<void*> room);

/// Location of a code address in the files of this process.
struct CodePlace {
  const char* file = nullptr;        ///< Null if no file has code at the address.
  const void* file_begin = nullptr;  ///< Address of the file's first byte in memory.
  std::uintptr_t offset = 0;         ///< Offset in the form that addr2line expects.
};

/// Returns the file and offset of a code address. Allocates no memory. Does not wait for
/// constructors of libraries that are being loaded.
[[nodiscard]] CodePlace find_code(const void* address);

/// Returns the mangled name of the function at the address; null unless the function is exported.
/// Allocates no memory. Waits for threads that load libraries.
[[nodiscard]] const char* exported_symbol(const void* address);

/// Stack of one thread of this process.
struct ThreadStack {
  int thread = 0;    ///< Kernel thread id.
  std::string name;  ///< Name set by pthread_setname_np().
  /// Innermost frame first, e.g. "train(int) in /opt/job/train(+0x1a2b)"; empty if `problem` gives
  /// a reason.
  std::vector<std::string> frames;
  std::string problem;
};

/// Returns the stacks of at most `max_threads` threads of this process except the calling thread.
/// The main thread comes first.
///
/// Each thread is interrupted for some microseconds by a real-time signal that the program does not
/// use; the handler is installed with the first call and stays. Like any signal, this signal
/// interrupts system calls that are not restarted automatically (poll, nanosleep), which then
/// return EINTR. A thread that blocks the signal, or does not take it within a quarter of a second,
/// has a problem instead of frames.
///
/// Thread-safe; concurrent calls wait for each other.
[[nodiscard]] std::vector<ThreadStack> take_stacks(std::size_t max_threads);

}  // namespace unisono
