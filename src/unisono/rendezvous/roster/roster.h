#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace unisono::rendezvous {

/// Whether a rank can have the backend that it is to have.
struct BackendNeed {
  std::string obstacle = {};  ///< Why it can't, of 512 bytes at most; empty: it can.
  bool falls_back = true;     ///< Whether it has the native one where some rank can't.
};

/// One rank of a job, as it told the others.
struct Member {
  int rank = 0;
  int world_size = 0;  ///< As this rank was told; the check of the roster compares them.
  std::string host;    ///< Host name, for messages.
  std::int64_t pid = 0;
  std::string node;     ///< Ranks with equal nodes can pass each other file descriptors.
  std::string address;  ///< Numeric IP address of its data listener.
  std::uint16_t port = 0;
  std::string endpoint;  ///< Name of its abstract Unix socket, for ranks of its node.
  BackendNeed backend = {};
};

/// "rank 3 (pid 4123 on node-a)".
[[nodiscard]] std::string describe(const Member& member);

/// Who is in the job, by rank.
struct Roster {
  int rank = 0;     ///< This rank.
  std::string job;  ///< Random name of this generation of the job, the same on every rank.
  std::vector<Member> members;

  [[nodiscard]] int world_size() const { return static_cast<int>(members.size()); }

  [[nodiscard]] const Member& self() const { return members[static_cast<std::size_t>(rank)]; }
};

}  // namespace unisono::rendezvous
