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
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kAllToAll:
      return "all_to_all";
    case OperationKind::kMonitoredBarrier:
      return "monitored_barrier";
  }
  return "unknown operation";
}

}  // namespace unisono::transport
