#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/engine/mpi/module.h"
#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::engine::mpi {

/// The MPI of this process, initialized. Thread-safe.
///
/// A thread of it calls the MPI every few milliseconds, as long as it lives: what an operation has
/// left with the MPI to send on moves only then, and a rank may wait for something else meanwhile.
class Library {
 public:
  /// That of the process, which there is once: made by who asks first, gone with the last share.
  /// Blocks until all ranks have come where the MPI does so in MPI_Init.
  ///
  /// Throws Error where there is no module of that MPI, where it can't be loaded, and where the
  /// program has initialized the MPI for one thread alone.
  [[nodiscard]] static std::shared_ptr<Library> open(rendezvous::MpiImplementation implementation);

  explicit Library(rendezvous::MpiImplementation implementation);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  Library(Library&&) = delete;
  Library& operator=(Library&&) = delete;

  [[nodiscard]] int rank() const { return started_.rank; }

  [[nodiscard]] int world_size() const { return started_.world_size; }

  /// A communicator of these ranks of the MPI's world, which all call it, and this waits for;
  /// `number` tells it from others that are made at the same time.
  [[nodiscard]] Handle join(const std::vector<int>& ranks, std::uint32_t number);
  void leave(Handle communicator) noexcept;

  [[nodiscard]] Handle begin(const Handle& communicator, const CollectiveCall& call);

  /// Whether it is done. Throws, too, once any operation was abandoned.
  [[nodiscard]] bool advance(Handle& request);

  /// An operation that has begun will not be done: the MPI may write to its memory for ever.
  /// This process ends without MPI_Finalize, which would wait for ranks that may have failed.
  void leave_out_finalize() noexcept;

  /// Nothing moves any more in this process, whose exit leaves out MPI_Finalize.
  void abandon() noexcept;

 private:
  // Calls the MPI: under a lock where it is not thread-safe.
  template <class Call>
  auto call(Call call) {
    if (started_.is_thread_safe) {
      return call();
    }
    const MutexLock lock(calls_);
    return call();
  }

  void check(int error, const char* what) const;
  void check_not_abandoned() const;
  void keep_moving() UNISONO_EXCLUDES(mutex_);

  rendezvous::MpiImplementation implementation_;
  const Module* module_;
  Started started_;
  Mutex calls_;
  std::atomic<bool> has_abandoned_ = false;  // Relaxed: it orders nothing else.
  Mutex mutex_;
  Condition changed_;
  bool is_ending_ UNISONO_GUARDED_BY(mutex_) = false;
  pid_t pid_;  // Whose thread it is.
  std::thread mover_;
};

}  // namespace unisono::engine::mpi
