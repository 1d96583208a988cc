#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

/// What rank 0 leaves for the others in the launcher's key space.
struct MasterRecord {
  std::string secret = {};   ///< Hexadecimal. Empty where the user has given rank 0 one.
  std::string address = {};  ///< Empty where rank 0 has been told the place, too.
  std::uint16_t port = 0;

  friend bool operator==(const MasterRecord&, const MasterRecord&) = default;
};

/// A word as all key spaces take it: "unisono1/SECRET/ADDRESS/PORT".
[[nodiscard]] std::string encode_record(const MasterRecord& note);

/// Nothing if it is no such word.
[[nodiscard]] std::optional<MasterRecord> decode_record(std::string_view text);

/// Fills in what the ranks of a job on several nodes have been told by nobody: the secret, if the
/// user has given none, and where they meet, if `launch_info` does not say. Rank 0 makes the one
/// and chooses the other, and tells them in the launcher's key space; a port that it chose is kept
/// for its store while the process lives. Where nothing is missing, as on one node, nobody is
/// asked.
///
/// The key space serves once in a process, so the answer is kept: other groups get the same.
/// Thread-safe. Says that it still waits after config.stall, twice that, and so on. Where there is
/// no key space after all, a missing secret may still be found elsewhere: a warning says why, and
/// so does key_value_space.problem of the result.
///
/// Throws Error: kInvalidArgument where the ranks were given different things, or there is neither
/// a place nor a key space; as KeyValueSpace does.
[[nodiscard]] LaunchInfo publish_master_address(const Config& config,
                                                const LaunchInfo& launch_info,
                                                Deadline deadline);

/// True where publish_master_address() asks the key space.
[[nodiscard]] bool needs_key_value_space(const Config& config, const LaunchInfo& launch_info);

/// Rank 0 puts `own` into the key space; the others, whose `own` does not count, get it there.
///
/// Throws Error: kTimeout, kIncompatible where rank 0 has put something else; as KeyValueSpace
/// does.
[[nodiscard]] MasterRecord exchange_record(KeyValueSpace& space,
                                           const LaunchInfo& launch_info,
                                           const MasterRecord& own,
                                           const Config& config,
                                           Deadline deadline);

/// `launch_info` with what rank 0 has told. Throws Error(kInvalidArgument) where the user has told
/// one of the two more than the other.
[[nodiscard]] LaunchInfo apply_record(const Config& config,
                                      const LaunchInfo& launch_info,
                                      const MasterRecord& note);

}  // namespace unisono::rendezvous
