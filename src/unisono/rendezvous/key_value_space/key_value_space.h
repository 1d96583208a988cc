#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/loaded_mpi.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

/// The key-value space of a launcher: the processes of a job exchange short texts through the
/// launcher before connections exist.
///
/// Implementations: open_pmi(), open_pmix(). Used by a single thread. Calls block until the
/// deadline at most, and throw Error(kTimeout), Error(kPeerLost) if the launcher is gone,
/// Error(kCorruptData) for an invalid reply, and Error(kSystem) if the launcher refuses.
class KeyValueSpace {
 public:
  KeyValueSpace() = default;
  virtual ~KeyValueSpace() = default;
  KeyValueSpace(const KeyValueSpace&) = delete;
  KeyValueSpace& operator=(const KeyValueSpace&) = delete;
  KeyValueSpace(KeyValueSpace&&) = delete;
  KeyValueSpace& operator=(KeyValueSpace&&) = delete;

  /// Stores a text without spaces under `key`. Readable by all processes after the next fence.
  virtual void put(const std::string& key, const std::string& text, Deadline deadline) = 0;

  /// Waits until every process of the job has entered the fence. Returns false if the deadline
  /// passes before; the next call continues to wait for the same fence.
  [[nodiscard]] virtual bool fence(Deadline deadline) = 0;

  /// Returns the text that the launcher's rank 0 has stored under `key`.
  [[nodiscard]] virtual std::string get(const std::string& key, Deadline deadline) = 0;

  /// Reports to the launcher that this process is done; a launcher ends the job if a process exits
  /// without this report. Must be the last call. Errors are ignored, because all values have been
  /// read.
  virtual void leave() noexcept = 0;
};

/// Opens the key space of a launcher with PMI-1: mpirun of MPICH and Intel MPI, srun --mpi=pmi2.
/// `fd`, from PMI_FD, remains owned by the process. `mpi` is the result of mpi_state().
///
/// The launcher closes the connection after the report of leave(), so the connection can be used
/// once per process. If an MPI library of this process may still use PMI, leave() keeps the
/// connection open; if MPI_Init is never called, the report is sent when the process exits.
///
/// Throws Error(kNotFound) if `fd` is not an open connection or an MPI library has ended PMI, and
/// the errors of KeyValueSpace.
[[nodiscard]] std::unique_ptr<KeyValueSpace> open_pmi(int fd, MpiState mpi, Deadline deadline);

/// Opens the key space of a launcher with PMIx: Open MPI's mpirun, prterun, srun --mpi=pmix. Uses
/// libpmix.so.2, which the first call loads for the rest of the process. The library has a thread
/// and separate time limits for requests to the node's daemon. `mpi` is the result of mpi_state();
/// if an MPI library of this process may still use PMIx, the library stays initialized until the
/// process exits.
///
/// Throws Error(kNotFound) if there is no such library, and the errors of KeyValueSpace.
[[nodiscard]] std::unique_ptr<KeyValueSpace> open_pmix(MpiState mpi);

/// A reply of the PMI-1 protocol: a line of words "name=value" that includes "cmd".
using PmiMessage = std::map<std::string, std::string, std::less<>>;

/// Parses a line without the newline. Returns std::nullopt if a word is not of the form name=value,
/// if a name is empty or repeated, or if cmd is missing.
[[nodiscard]] std::optional<PmiMessage> parse_pmi(std::string_view line);

/// The record that rank 0 publishes in the launcher's key space.
struct MasterRecord {
  std::string secret = {};   ///< Hexadecimal. Empty if the user has given rank 0 a secret.
  std::string address = {};  ///< Empty if rank 0 was given an address.
  std::uint16_t port = 0;

  friend bool operator==(const MasterRecord&, const MasterRecord&) = default;
};

/// Returns the record as a word that every key space accepts: "unisono1/SECRET/ADDRESS/PORT".
[[nodiscard]] std::string encode_record(const MasterRecord& note);

/// Parses such a word. Returns std::nullopt for any other text.
[[nodiscard]] std::optional<MasterRecord> decode_record(std::string_view text);

/// Completes `launch_info` for a job on several nodes: the secret, unless the user has set a
/// secret, and the meeting point, if missing. Rank 0 generates the former and chooses the latter,
/// and publishes both in the launcher's key space; the process keeps a chosen port reserved for the
/// store. If no value is missing, as on a single node, the key space is not used.
///
/// The key space can be used once per process, so the result is kept for all groups. Thread-safe.
/// Blocks until the deadline at most, and logs a warning after config.stall, twice that time, and
/// so on. If the key space turns out to be unusable but only the secret is missing, the call
/// succeeds, because the secret may be found elsewhere; a warning and the result's
/// key_value_space.problem contain the reason.
///
/// Throws Error(kInvalidArgument) if the ranks were given different values, or if there is neither
/// a meeting point nor a key space, and the errors of KeyValueSpace.
[[nodiscard]] LaunchInfo publish_master_address(const base::Config& config,
                                                const LaunchInfo& launch_info,
                                                Deadline deadline);

/// Returns true if publish_master_address() would use the key space.
[[nodiscard]] bool needs_key_value_space(const base::Config& config, const LaunchInfo& launch_info);

/// On rank 0, stores `own` in the key space and returns `own`. On other ranks, ignores `own` and
/// returns rank 0's record.
///
/// Throws Error(kTimeout), Error(kIncompatible) if rank 0 has stored another kind of text, and the
/// errors of KeyValueSpace.
[[nodiscard]] MasterRecord exchange_record(KeyValueSpace& space,
                                           const LaunchInfo& launch_info,
                                           const MasterRecord& own,
                                           const base::Config& config,
                                           Deadline deadline);

/// Returns `launch_info` completed with rank 0's record. Throws Error(kInvalidArgument) if the user
/// has given a value to this rank but not to rank 0, or the reverse.
[[nodiscard]] LaunchInfo apply_record(const base::Config& config,
                                      const LaunchInfo& launch_info,
                                      const MasterRecord& note);

}  // namespace unisono::rendezvous
