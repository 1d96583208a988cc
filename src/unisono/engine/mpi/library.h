#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/loaded_mpi.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/mpi/module.h"

namespace unisono::engine::mpi {

/// Returns the MPIs for which find_module() finds a module.
[[nodiscard]] std::vector<MpiImplementation> built_modules();

/// Returns the file of the MPI's module, or "" without a module. Searches the folder of the library
/// or program that contains this code, the folder lib/unisono beside it, the installation and the
/// build.
[[nodiscard]] std::string find_module(MpiImplementation implementation);

/// Returns the package that the module requires: "libopenmpi-dev".
[[nodiscard]] const char* package_of(MpiImplementation implementation);

/// The initialized MPI of this process. Shared by the engines of the process's groups; ends with
/// the last engine. Thread-safe.
///
/// A thread of the object calls the MPI every few milliseconds: data of an ended operation that the
/// MPI still has to forward moves only inside such a call, and this rank may wait for another event
/// meanwhile.
class MpiLibrary {
 public:
  /// Returns the single instance of the process, and makes it if there is no instance. Blocks until
  /// all ranks have called, if the MPI does so in MPI_Init.
  ///
  /// Throws Error if there is no module for the MPI, if the module can't be loaded, or if the
  /// program has initialized the MPI for a single thread.
  [[nodiscard]] static std::shared_ptr<MpiLibrary> open(MpiImplementation implementation);

  /// For open(): initializes the MPI, and starts the thread.
  explicit MpiLibrary(MpiImplementation implementation);
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;
  MpiLibrary(MpiLibrary&&) = delete;
  MpiLibrary& operator=(MpiLibrary&&) = delete;

  [[nodiscard]] int rank() const { return started_.rank; }

  [[nodiscard]] int world_size() const { return started_.world_size; }

  /// Makes a communicator of these ranks of the MPI's world. All of them must call, and the call
  /// waits for all. `number` distinguishes communicators that are made at the same time.
  [[nodiscard]] Handle join(const std::vector<int>& ranks, std::uint32_t number);
  /// Frees the communicator, unless an operation has been abandoned.
  void leave(Handle communicator) noexcept;

  /// Begins an operation and returns its request. Throws Error(kSystem), or kClosed after
  /// abandon().
  [[nodiscard]] Handle begin(const Handle& communicator, const CollectiveCall& call);

  /// Returns whether the request is done. Throws once any operation has been abandoned.
  [[nodiscard]] bool advance(Handle& request);

  /// Called if an operation in progress will not end, so that the MPI may write to its memory at
  /// any time. This process ends without MPI_Finalize, which would wait for ranks that may have
  /// failed.
  void leave_out_finalize() noexcept;

  /// Ends all progress in this process, which exits without MPI_Finalize.
  void abandon() noexcept;

 private:
  // Calls the MPI, under a lock if the MPI is not thread-safe.
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

  MpiImplementation implementation_;
  const Module* module_;
  MpiRuntime started_;
  Mutex calls_;
  // Relaxed accesses suffice: no other data depends on it.
  std::atomic<bool> has_abandoned_ = false;
  Mutex mutex_;
  Condition changed_;
  bool is_ending_ UNISONO_GUARDED_BY(mutex_) = false;
  pid_t pid_;  // The process that owns the thread.
  std::thread mover_;
};

}  // namespace unisono::engine::mpi
