#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/store/store_map.h"

namespace unisono::store {

enum class StepKind : std::uint8_t {
  kSet = 1,
  kAppend = 2,
  kErase = 3,
  kPush = 4,
  kPop = 5,
  kCount = 6,  ///< One more call of a barrier.
};

/// One step from a state of a StoreMap to the next.
struct Step {
  StepKind kind = StepKind::kSet;
  std::string key;
  std::string value = {};       ///< Of kSet, kAppend and kPush.
  std::int64_t world_size = 0;  ///< Of kCount.

  friend bool operator==(const Step&, const Step&) = default;
};

/// Steps that are seen together or not at all.
using Change = std::vector<Step>;

/// What no client has for a name.
inline constexpr ClientId kNobody = 0;

/// Takes the step. `client` waits for the end of the barrier that a kCount belongs to.
void apply(StoreMap& map, Step step, ClientId client);

/// Bytes of keys and values that the change brings.
[[nodiscard]] std::size_t n_new_bytes(const Change& change);

// Per step: u8 kind, string key, then a string value or i64 world size, where the kind has one.
void encode(ByteWriter& writer, const Change& change);

/// Nothing if these are not exactly the bytes of a change.
[[nodiscard]] std::optional<Change> decode_change(std::span<const std::byte> bytes);

}  // namespace unisono::store
