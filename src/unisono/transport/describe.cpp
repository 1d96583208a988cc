#include "unisono/transport/describe.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

std::string describe(const Descriptor& descriptor, std::uint64_t sequence) {
  std::string head = fmt::format("{} #{}", to_string(descriptor.kind), sequence);
  const std::string shape =
      fmt::format("{}[{}]", unisono::to_string(descriptor.dtype), descriptor.count);
  switch (descriptor.kind) {
    case OperationKind::kAllReduce:
      return fmt::format("{} ({}, {}{})",
                         head,
                         shape,
                         unisono::to_string(descriptor.reduce),
                         descriptor.algorithm == Algorithm::kAuto
                             ? ""
                             : fmt::format(", {}", unisono::to_string(descriptor.algorithm)));
    case OperationKind::kBroadcast:
      return fmt::format("{} ({}, root {})", head, shape, descriptor.root);
    case OperationKind::kNone:
    case OperationKind::kBarrier:
      break;
  }
  return head;
}

}  // namespace unisono::transport
