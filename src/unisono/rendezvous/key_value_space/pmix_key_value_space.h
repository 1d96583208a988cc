#pragma once

#include <memory>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::rendezvous {

struct PmixFence;
struct PmixLibrary;

/// The key space of a launcher that speaks PMIx: Open MPI's mpirun, prterun, srun --mpi=pmix. By
/// libpmix.so.2, which is loaded when the first one is made, and stays.
///
/// The library has a thread and time limits of its own for what it asks the node's daemon.
class PmixKeyValueSpace final : public KeyValueSpace {
 public:
  /// `mpi`: mpi_state(). Where an MPI of this process is still to come, the library is left open
  /// for it until the process ends.
  ///
  /// Throws Error: kNotFound where there is no such library, as KeyValueSpace does.
  explicit PmixKeyValueSpace(MpiState mpi);

  void put(const std::string& key, const std::string& text, Deadline deadline) override;
  bool fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;
  void leave() noexcept override;

 private:
  const PmixLibrary& library_;
  MpiState mpi_;
  std::string name_space_;            // The launcher's name of the job.
  std::shared_ptr<PmixFence> fence_;  // Shared with the library until it is over.
};

}  // namespace unisono::rendezvous
