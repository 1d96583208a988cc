#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "unisono/base/reduction.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

// Operations that move bytes without computing. Between nodes each byte travels once to every node
// that needs the byte, directly into the memory of a rank of that node.

/// Copies the root's `in` to each rank's `out`.
void broadcast(OperationContext& context);
/// Copies each rank's `in` to block `outs[rank]` of every rank.
void all_gather(OperationContext& context);
/// Executes gather, scatter and all_to_all.
void move_blocks(OperationContext& context);

// Executes all_reduce, reduce and reduce_scatter: the plan has the receivers of each chunk.

/// Inside a single node, for contributions that fit into the slots: each receiver adds all
/// contributions. `steps` is the canonical tree over the node's ranks.
void reduce_in_slots(OperationContext& context,
                     const collective::ReducePlan& plan,
                     kernels::ReduceSteps steps);

/// Reduces between nodes in a single exchange, for contributions that fit into the slots.
void reduce_one_shot(OperationContext& context, const collective::ReducePlan& plan);

/// Each rank combines a chunk and passes the result on to the chunk's receivers. `steps` is the
/// canonical tree over all ranks.
void reduce_two_shot(OperationContext& context,
                     const collective::ReducePlan& plan,
                     kernels::ReduceSteps steps);

/// An all-reduce in steps from rank to rank: inside a node ranks read the peers' staging buffers,
/// between nodes data travel through connections. Buffers larger than a staging buffer go part by
/// part.
void reduce_in_steps(OperationContext& context, const collective::StepPlan& plan);

// Reductions within a single node. `steps` is the canonical tree over the node's ranks.

/// Returns the elements of the ranks' inputs that a rank reduces.
[[nodiscard]] collective::ElementRange node_chunk(const OperationContext& context,
                                                  collective::Receivers::Kind receivers,
                                                  int local_rank);

/// Returns whether all other ranks can access the buffers that a rank of the node reads and writes,
/// because they lie in the rank's arena.
[[nodiscard]] bool is_reachable(const OperationContext& context,
                                collective::Receivers receivers,
                                int local_rank,
                                const shm::SlotPlacement& placement);

/// Returns whether is_reachable() holds for all ranks. Call after enter_with_buffers().
[[nodiscard]] bool is_symmetric(const OperationContext& context, collective::Receivers receivers);

/// Each rank reduces its chunk of all ranks' buffers, and writes the result to each receiver.
void reduce_symmetric(OperationContext& context,
                      collective::Receivers receivers,
                      kernels::ReduceSteps steps);

/// Returns whether the ranks of the node have published the addresses of their buffers, and reads
/// from the processes are the faster method. Call after enter_with_buffers().
[[nodiscard]] bool can_reduce_by_reading(const OperationContext& context,
                                         const collective::ReducePlan& plan);

/// Executes all_reduce and reduce_scatter on private memory: each rank reads a chunk of the other
/// ranks' buffers piece by piece, reduces the chunk into the rank's own buffer, and then reads the
/// results of the other chunks.
void reduce_by_reading(OperationContext& context,
                       const collective::ReducePlan& plan,
                       kernels::ReduceSteps steps);

/// The reduction plans of a rank, each made at the first use. Plans depend only on the topology.
/// Owned by NativeEngine; used only by the thread that executes an operation.
class ReducePlans {
 public:
  /// The topology must outlive the object.
  explicit ReducePlans(const collective::Topology& topology);

  /// Plan of reduce_one_shot().
  [[nodiscard]] const collective::ReducePlan& one_shot(collective::Receivers receivers);
  /// Plan of reduce_two_shot() and, within a single node, of reduce_in_slots().
  [[nodiscard]] const collective::ReducePlan& two_shot(collective::Receivers receivers);

  /// Plan of reduce_in_steps().
  [[nodiscard]] const collective::StepPlan& in_steps(Algorithm algorithm);

  /// Returns the canonical tree over all ranks' contributions.
  [[nodiscard]] kernels::ReduceSteps whole_tree() const { return whole_tree_; }

 private:
  // Plans by root; kinds without a root have a single plan.
  using PlansOfKind = std::map<int, collective::ReducePlan>;

  const collective::Topology& topology_;
  std::vector<kernels::ReduceStep> whole_tree_;
  std::map<collective::Receivers::Kind, PlansOfKind> one_shot_;
  std::map<collective::Receivers::Kind, PlansOfKind> two_shot_;
  std::map<Algorithm, collective::StepPlan> in_steps_;
};

/// Packs the buffers of a coalesced operation into a single buffer, and unpacks the result. Owned
/// by NativeEngine, which keeps the memory between operations; used only by the thread that
/// executes an operation.
class Coalescing {
 public:
  /// Returns the operation, with an unchanged descriptor, on memory of this object, and copies the
  /// inputs there. Releases memory after a series of calls that need little of it.
  [[nodiscard]] Operation pack(const Operation& operation, int world_size);

  /// Copies the results of `packed` into the buffers of `operation`.
  static void unpack(const Operation& packed, const Operation& operation);

 private:
  void make_room(std::size_t n_bytes);
  [[nodiscard]] Buffer take(const Operation& operation, std::int64_t begin, std::int64_t count);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t n_bytes_ = 0;
  int n_small_calls_ = 0;  // Consecutive small calls.
};

}  // namespace unisono::engine
