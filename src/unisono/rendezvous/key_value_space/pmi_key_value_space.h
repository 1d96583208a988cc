#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::rendezvous {

/// An answer of the PMI-1 protocol: a line of words "name=value", "cmd" among them.
using PmiMessage = std::map<std::string, std::string, std::less<>>;

/// Takes a line, without its end, apart. Nothing if a word is no name=value, a name is empty or
/// comes twice, or there is no cmd.
[[nodiscard]] std::optional<PmiMessage> parse_pmi(std::string_view line);

/// The value, or an empty text.
[[nodiscard]] std::string_view value_of(const PmiMessage& message, std::string_view name);

/// The key space of a launcher that speaks PMI-1: mpirun of MPICH and Intel MPI, srun --mpi=pmi2.
///
/// The launcher closes the connection when it has been told that the process is done, so it serves
/// once. Where an MPI of this process is still to use it, this one leaves it open; if that never
/// comes, the launcher is told at the end of the process.
class PmiKeyValueSpace final : public KeyValueSpace {
 public:
  /// `fd`, from PMI_FD, stays the process's. `mpi`: mpi_state().
  ///
  /// Throws Error: kNotFound where `fd` is no connection or an MPI has ended it; as KeyValueSpace
  /// does.
  PmiKeyValueSpace(int fd, MpiState mpi, Deadline deadline);

  void put(const std::string& key, const std::string& text, Deadline deadline) override;
  bool fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;
  void leave() noexcept override;

 private:
  void send(const std::string& command, Deadline deadline);
  // Nothing of a longer answer is lost when the time is up.
  std::string receive_line(Deadline deadline);
  PmiMessage receive(std::string_view expected, Deadline deadline);
  PmiMessage ask(const std::string& command, std::string_view expected, Deadline deadline);

  int fd_;
  MpiState mpi_;
  std::string received_;
  bool is_in_fence_ = false;
  std::string space_;  // The name of the job's key space.
  std::size_t max_key_bytes_ = 0;
  std::size_t max_text_bytes_ = 0;
};

}  // namespace unisono::rendezvous
