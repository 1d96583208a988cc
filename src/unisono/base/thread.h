#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace unisono {

/// Runs `body`, which does not throw, on a thread of its own. `name` is what the kernel calls it:
/// at most 15 characters.
///
/// Throws Error(kSystem) when there can be no more threads; `failure` is how its message begins,
/// e.g. "rank 3 can't start its thread".
[[nodiscard]] std::thread start_thread(const char* name,
                                       const std::string& failure,
                                       std::function<void()> body);

/// Whether the calling thread was started so. Such a thread may be the one that an end waits for.
[[nodiscard]] bool is_started_thread();

/// The calling thread's number in its process, from 1; no other thread has it, even later.
[[nodiscard]] std::uint64_t this_thread_number();

}  // namespace unisono
