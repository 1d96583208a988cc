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
    case OperationKind::kAllReduceCoalesced:
      return "all_reduce_coalesced";
    case OperationKind::kAllGatherCoalesced:
      return "all_gather_coalesced";
    case OperationKind::kReduceScatterCoalesced:
      return "reduce_scatter_coalesced";
  }
  return "unknown operation";
}

}  // namespace unisono::transport
