#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace unisono::rendezvous {

/// What a process that looks for its peers says to all of a multicast group, again and again.
struct Announcement {
  std::string group_name;  ///< Jobs of different names may share a multicast group.
  std::uint64_t id = 0;    ///< Random.
  std::int32_t world_size = 0;
  std::int64_t pid = 0;
  std::string host;              ///< Its name, for messages.
  std::uint16_t store_port = 0;  ///< Where it would serve the store.
  std::uint32_t n_known = 0;     ///< How many processes it knows, itself included.
  std::uint64_t known_hash = 0;  ///< Which.

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// With a proof that the sender knows the job's secret.
[[nodiscard]] std::vector<std::byte> encode(const Announcement& announcement,
                                            const std::string& secret);

/// Nothing for other bytes, and where the secret is another.
[[nodiscard]] std::optional<Announcement> decode_announcement(std::span<const std::byte> bytes,
                                                              const std::string& secret);

}  // namespace unisono::rendezvous
