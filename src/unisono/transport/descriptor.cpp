#include "unisono/transport/descriptor.h"

namespace unisono::transport {

const char* to_string(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::kNone:
      return "no operation";
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllReduce:
      return "all_reduce";
  }
  return "unknown operation";
}

}  // namespace unisono::transport
