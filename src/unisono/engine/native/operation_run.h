#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/collective/all_reduce_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/patience.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/tcp/exchange.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::engine {

/// One operation under way on this rank: what its steps share.
class OperationRun {
 public:
  OperationRun(const Operation& operation,
               const collective::Topology& topology,
               shm::Board& board,
               tcp::Mesh& mesh,
               shm::WaitMode mode,
               transport::Patience& patience,
               std::vector<std::byte>& scratch)
      : operation_(operation),
        topology_(topology),
        board_(board),
        exchange_(
            mesh, {.sequence = operation.sequence, .descriptor = operation.descriptor}, patience),
        mode_(mode),
        patience_(patience),
        scratch_(scratch) {}

  void barrier();
  void broadcast();
  /// `two_shot` is the other schedule's plan: inside a single node its order serves both.
  void all_reduce_one_shot(const collective::AllReducePlan& plan,
                           const collective::AllReducePlan& two_shot);
  void all_reduce_two_shot(const collective::AllReducePlan& plan);

 private:
  // A range of the buffers as this rank reaches each of its node's ranks, by local rank. Pointers
  // are to the first element of the range.
  struct Window {
    collective::ElementRange range;
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    bool is_streaming = false;
  };

  // meeting.cpp
  void enter();

  void sync() { board_.sync(mode_, patience_); }

  void check_cards() const;
  [[nodiscard]] bool is_symmetric_on_all() const;
  void meet_other_nodes();

  // reduce_window.cpp
  void reduce_window(const collective::AllReducePlan& plan, const Window& window);
  void exchange_partials(const collective::AllReducePlan& plan, const Window& window);
  void compute_partial(collective::RankRange subtree,
                       collective::ElementRange elements,
                       const Window& window,
                       std::byte* partial) const;
  void combine(const collective::ChunkPlan& chunk, int n_chunks, const Window& window);
  void exchange_results(const collective::AllReducePlan& plan, const Window& window);

  // all_reduce.cpp
  void reduce_slots(const collective::ChunkPlan& chunk);
  void all_reduce_symmetric(const collective::AllReducePlan& plan);
  void all_reduce_pipelined(const collective::AllReducePlan& plan);
  void all_reduce_between_nodes(const collective::AllReducePlan& plan);
  [[nodiscard]] Window symmetric_window(collective::ElementRange range) const;
  [[nodiscard]] Window staged_window(collective::ElementRange range, std::int64_t index) const;
  void copy_in(const Window& window, std::int64_t index) const;
  void copy_out(const collective::AllReducePlan& plan,
                const Window& window,
                std::int64_t index) const;

  // broadcast.cpp
  void broadcast_small(int root_local_rank);
  void broadcast_symmetric(int root_local_rank);
  void broadcast_pipelined(int root_local_rank);
  void broadcast_between_nodes(int source_node);
  void send_segment(collective::ElementRange range, const std::byte* source);
  void take_peers_chunks(collective::ElementRange range) const;
  void receive_segment(collective::ElementRange range, int source_node, bool is_symmetric);

  [[nodiscard]] int n_local() const { return board_.local_world_size(); }

  [[nodiscard]] int self() const { return board_.local_rank(); }

  [[nodiscard]] std::int64_t element_bytes() const;

  [[nodiscard]] collective::ElementRange range_of(int chunk,
                                                  int n_chunks,
                                                  collective::ElementRange window) const;

  [[nodiscard]] const std::byte* in_bytes() const {
    return static_cast<const std::byte*>(operation_.in.data);
  }

  [[nodiscard]] std::byte* out_bytes() const {
    return static_cast<std::byte*>(operation_.out.data);
  }

  const Operation& operation_;
  const collective::Topology& topology_;
  shm::Board& board_;
  tcp::Exchange exchange_;
  shm::WaitMode mode_;
  transport::Patience& patience_;
  std::vector<std::byte>& scratch_;
  // Partial results of other nodes for the chunk that this rank combines, in the plan's order.
  std::vector<const std::byte*> received_;
};

}  // namespace unisono::engine
