#include "unisono/collective/choose.h"

#include <cstdint>

#include "unisono/collective/topology.h"

namespace unisono::collective {
namespace {

// Measured on two cores of a server: a meeting costs what reading some 4 KiB from a peer does.
constexpr std::int64_t kBytesPerMeeting = 4096;

// A round trip between nodes costs what moving this much does.
constexpr std::int64_t kBytesPerRoundTrip = 64 << 10;

}  // namespace

bool is_one_shot_cheaper(std::int64_t n_bytes, const Topology& topology, std::int64_t slot_bytes) {
  if (n_bytes > slot_bytes) {
    return false;
  }
  const std::int64_t saved = topology.n_nodes() > 1 ? kBytesPerRoundTrip : kBytesPerMeeting;
  const std::int64_t read_by_one_shot = (topology.local_world_size() - 1) * n_bytes;
  const std::int64_t read_by_two_shot = 2 * n_bytes;
  return read_by_one_shot <= read_by_two_shot + saved;
}

}  // namespace unisono::collective
