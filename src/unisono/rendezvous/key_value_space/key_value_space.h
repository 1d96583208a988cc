#pragma once

#include <memory>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::rendezvous {

/// Short texts that the processes of a launcher's job leave each other with the launcher, before
/// they know each other. One is used by one thread.
///
/// Everything throws Error: kTimeout, kPeerLost when the launcher has gone, kCorruptData for an
/// answer that makes no sense, kSystem when the launcher refuses.
class KeyValueSpace {
 public:
  KeyValueSpace() = default;
  virtual ~KeyValueSpace() = default;
  KeyValueSpace(const KeyValueSpace&) = delete;
  KeyValueSpace& operator=(const KeyValueSpace&) = delete;
  KeyValueSpace(KeyValueSpace&&) = delete;
  KeyValueSpace& operator=(KeyValueSpace&&) = delete;

  /// Puts a text, without spaces, under `key`, for all to get after the next fence.
  virtual void put(const std::string& key, const std::string& text, Deadline deadline) = 0;

  /// Waits until every process of the job is in its fence. False when the time is up before that:
  /// the next call goes on waiting for the same one.
  [[nodiscard]] virtual bool fence(Deadline deadline) = 0;

  /// What the launcher's rank 0 has put under `key`.
  [[nodiscard]] virtual std::string get(const std::string& key, Deadline deadline) = 0;

  /// Tells the launcher that this process is done; a launcher ends a job of which a process leaves
  /// without a word. Nothing else may be called after it. Throws nothing: what was to be known is.
  virtual void leave() noexcept = 0;
};

/// The key space of a launcher that speaks PMI-1: mpirun of MPICH and Intel MPI, srun --mpi=pmi2.
/// `fd`, from PMI_FD, stays the process's. `mpi`: mpi_state().
///
/// The launcher closes the connection when it has been told that the process is done, so it serves
/// once. Where an MPI of this process is still to use it, this one leaves it open; if that never
/// comes, the launcher is told at the end of the process.
///
/// Throws Error: kNotFound where `fd` is no connection or an MPI has ended it; as KeyValueSpace
/// does.
[[nodiscard]] std::unique_ptr<KeyValueSpace> open_pmi(int fd, MpiState mpi, Deadline deadline);

/// The key space of a launcher that speaks PMIx: Open MPI's mpirun, prterun, srun --mpi=pmix. By
/// libpmix.so.2, which is loaded when the first one is opened, and stays. It has a thread and time
/// limits of its own for what it asks the node's daemon. `mpi`: mpi_state(); where an MPI of this
/// process is still to come, the library is left open for it until the process ends.
///
/// Throws Error: kNotFound where there is no such library, as KeyValueSpace does.
[[nodiscard]] std::unique_ptr<KeyValueSpace> open_pmix(MpiState mpi);

}  // namespace unisono::rendezvous
