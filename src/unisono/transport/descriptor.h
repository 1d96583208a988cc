#pragma once

#include <cstdint>
#include <type_traits>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"

namespace unisono::transport {

/// Kinds of operations. The values travel: append only.
enum class OperationKind : std::uint8_t { kNone, kBarrier, kBroadcast, kAllReduce };

/// "all_reduce", ... as in messages.
[[nodiscard]] const char* to_string(OperationKind kind) noexcept;

/// What an operation says of itself to its peers, with the data it sends anyway. Ranks whose
/// descriptors differ called different operations.
struct Descriptor {
  OperationKind kind = OperationKind::kNone;
  DType dtype = DType::kInt8;
  ReduceKind reduce = ReduceKind::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  std::int32_t root = 0;
  std::int64_t count = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

// It is copied byte by byte into shared memory and frames.
static_assert(sizeof(Descriptor) == 16 && std::is_trivially_copyable_v<Descriptor>);

}  // namespace unisono::transport
