#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::launch::hosts {

/// A machine that takes part in a job.
struct Host {
  std::string name;                   ///< For the remote shell: "alpha", "me@alpha".
  std::optional<int> n_workers = {};  ///< Its ranks, where the list says so.

  friend bool operator==(const Host&, const Host&) = default;
};

/// Reads "alpha:4,beta:4,node[1-3]:2", names in brackets as Slurm writes them; or what LSF has in
/// LSB_HOSTS and LSB_MCPU_HOSTS ("alpha alpha beta", "alpha 2 beta 1"), and "2*alpha".
///
/// A name that comes again adds its ranks to the first one's. Where no name has a number and any
/// comes again, each time stands for one rank.
///
/// Throws Error(kInvalidArgument) with the place: no host, a name or address that no machine can
/// have, no number of ranks from 1 to 4096, some hosts with a number and some without.
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view text);

/// Reads a file of the same, a host a line, as Open MPI ("alpha slots=4 max_slots=8"), MPICH
/// ("alpha:4"), Slurm ("node[1-3]"), PBS and LSF (a line for each rank) and Grid Engine ("alpha 4
/// all.q@alpha UNDEFINED") have them; "#" begins a comment.
///
/// Throws as above with the file and the line, and as TextLines; Error(kSystem) when it can't be
/// read.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);

}  // namespace unisono::launch::hosts
