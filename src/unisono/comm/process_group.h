#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/transport/rank_table.h"

namespace unisono {

/// The Error(kInvalidArgument) of a call that a process group refuses because of its arguments. No
/// data was sent, and the group remains usable.
class RefusedCall : public Error {
 public:
  /// `call` is the rank and the operation: "[rank 0/2] all_reduce".
  RefusedCall(const std::string& call, const std::string& problem)
      : Error(ErrorCode::kInvalidArgument, call + ": " + problem),
        problem_begin_(call.size() + 2) {}

  /// Returns the problem without the call, for a layer above whose call has another name.
  [[nodiscard]] std::string problem() const { return std::string(what()).substr(problem_begin_); }

 private:
  std::size_t problem_begin_;
};

/// The Error(kTimeout) of a process group's operation, with the late ranks.
class TimedOut : public Error {
 public:
  /// `error` supplies code and message.
  TimedOut(const Error& error, std::vector<int> late_ranks)
      : Error(error), late_ranks_(std::move(late_ranks)) {}

  /// Returns the ranks of the group, in order, for which this rank waited when the timeout ended
  /// its wait, here or on another rank. For monitored_barrier() these are all ranks that had not
  /// arrived; for other operations the ranks that delayed this rank, which may wait for others
  /// themselves. Empty if unknown, for example after a wait of less than 0.2 s that another rank's
  /// timeout ended.
  [[nodiscard]] const std::vector<int>& late_ranks() const noexcept { return late_ranks_; }

 private:
  std::vector<int> late_ranks_;
};

class ProcessGroup;

namespace comm {
class OperationQueue;
/// Returns the queue of the group, for other parts of the library.
[[nodiscard]] OperationQueue& group_of(ProcessGroup& group);
}  // namespace comm

namespace store {
class Store;
}

/// A set of ranks that communicate.
///
/// Every rank must call the same operations in the same order; a group executes its operations in
/// that order. Members are thread-safe, but the caller must order the calls of several threads.
/// Buffers that an operation writes must not be accessed until the operation has ended.
///
/// Operations throw Error. kInvalidArgument is thrown before any data is sent, and the group
/// remains usable. Every other error (kMismatch if ranks call different operations, kPeerLost,
/// kTimeout, ...) closes the group: output buffers are then unspecified, and every later call
/// throws kClosed with the first cause.
class ProcessGroup {
 public:
  /// Called by create_process_group() and new_group(); programs call these functions.
  explicit ProcessGroup(std::unique_ptr<comm::OperationQueue> group);

  /// Calls destroy().
  ~ProcessGroup();

  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  ProcessGroup(ProcessGroup&&) = delete;
  ProcessGroup& operator=(ProcessGroup&&) = delete;

  /// This rank's number in the group, from 0.
  [[nodiscard]] int rank() const;
  /// Number of ranks in the group.
  [[nodiscard]] int world_size() const;

  /// This rank's index among the ranks of its node, from 0 in order of rank.
  [[nodiscard]] int local_rank() const;

  /// Number of ranks on this rank's node.
  [[nodiscard]] int local_world_size() const;

  /// The members of the group, by rank in the group; each has its rank in the job.
  [[nodiscard]] const transport::RankTable& roster() const;

  /// Combines the ranks' `in` element by element into every rank's `out`.
  ///
  /// The result is that of the canonical tree: bit for bit equal on every rank, whichever of the
  /// canonical algorithms computes it. Backends without canonical bits, and algorithms that combine
  /// in another order, are exceptions that a caller must request by name (see Algorithm). `in` and
  /// `out` must have equal count and dtype on all ranks, and be the same memory or not overlap.
  /// Memory from allocate() is not copied.
  void all_reduce(const Buffer& in, const Buffer& out, const AllReduceOptions& options = {});
  /// Reduces in place.
  void all_reduce(const Buffer& in_out, const AllReduceOptions& options = {});
  Work all_reduce_async(const Buffer& in, const Buffer& out, const AllReduceOptions& options = {});
  Work all_reduce_async(const Buffer& in_out, const AllReduceOptions& options = {});

  /// Reduces many buffers of a single dtype at the cost of a single operation: for small buffers,
  /// which are packed together. All ranks must pass buffers of the same sizes in the same order.
  void all_reduce_coalesced(std::span<const Buffer> in_out, const AllReduceOptions& options = {});
  Work all_reduce_coalesced_async(std::span<const Buffer> in_out,
                                  const AllReduceOptions& options = {});

  /// Executes reduce_scatter() of each of `ins` into each of `outs` as a single operation. Blocks
  /// are equal; an output may be this rank's block of its input.
  void reduce_scatter_coalesced(std::span<const Buffer> ins,
                                std::span<const Buffer> outs,
                                const ReduceScatterOptions& options = {});
  Work reduce_scatter_coalesced_async(std::span<const Buffer> ins,
                                      std::span<const Buffer> outs,
                                      const ReduceScatterOptions& options = {});

  /// Executes all_gather() of each of `ins` into each of `outs` as a single operation. Blocks are
  /// equal; an input may be this rank's block of its output.
  void all_gather_coalesced(std::span<const Buffer> ins,
                            std::span<const Buffer> outs,
                            const AllGatherOptions& options = {});
  Work all_gather_coalesced_async(std::span<const Buffer> ins,
                                  std::span<const Buffer> outs,
                                  const AllGatherOptions& options = {});

  /// Like all_reduce(), but only the root gets the result: the other ranks' `out` is ignored, and
  /// may be empty. No rank's `in` changes, except if the root's `in` is its `out`.
  void reduce(const Buffer& in, const Buffer& out, const ReduceOptions& options = {});
  Work reduce_async(const Buffer& in, const Buffer& out, const ReduceOptions& options = {});

  /// Combines the ranks' `in`, which has a block for each rank, and writes block r of the result to
  /// rank r's `out`. Blocks are equal, or have the sizes in `options.counts`; the blocks of a list
  /// may be anywhere in memory. A rank's own block may be its `out`.
  void reduce_scatter(const Blocks& in,
                      const Buffer& out,
                      const ReduceScatterOptions& options = {});
  Work reduce_scatter_async(const Blocks& in,
                            const Buffer& out,
                            const ReduceScatterOptions& options = {});

  /// Copies the root's elements to every rank.
  void broadcast(const Buffer& buffer, const BroadcastOptions& options = {});
  Work broadcast_async(const Buffer& buffer, const BroadcastOptions& options = {});

  // The following operations use a block for each rank: contiguous in a single buffer (with equal
  // sizes, or the sizes in the options' counts), or a list with an entry per rank, such as a
  // vector. Inputs and outputs must not overlap, except that a rank's own block may already be in
  // place (but not in all_to_all).

  /// Gathers every rank's `in` on every rank, in order of rank.
  void all_gather(const Buffer& in, const Blocks& out, const AllGatherOptions& options = {});
  Work all_gather_async(const Buffer& in, const Blocks& out, const AllGatherOptions& options = {});

  /// Gathers every rank's `in` on the root. The other ranks pass Buffer() or an empty list for the
  /// output. In a list, blocks may have any size.
  void gather(const Buffer& in, const Blocks& out, const GatherOptions& options = {});
  Work gather_async(const Buffer& in, const Blocks& out, const GatherOptions& options = {});

  /// Sends each rank its block of the root's input. The other ranks pass Buffer() or an empty list
  /// for the input. In a list, blocks may have any size.
  void scatter(const Blocks& in, const Buffer& out, const ScatterOptions& options = {});
  Work scatter_async(const Blocks& in, const Buffer& out, const ScatterOptions& options = {});

  /// Sends each rank a block of every rank: block s of rank r becomes block r of rank s. Blocks of
  /// any size require lists for both input and output.
  void all_to_all(const Blocks& in, const Blocks& out, const AllToAllOptions& options = {});
  Work all_to_all_async(const Blocks& in, const Blocks& out, const AllToAllOptions& options = {});

  /// Returns when every rank has called barrier().
  void barrier(const BarrierOptions& options = {});
  Work barrier_async(const BarrierOptions& options = {});

  /// A barrier that reports absent ranks: with a short timeout, the resulting TimedOut error names
  /// and lists all ranks that did not arrive. A call of barrier() on another rank is a mismatch.
  /// Each rank sends a message to every rank of another node.
  void monitored_barrier(const BarrierOptions& options = {});
  Work monitored_barrier_async(const BarrierOptions& options = {});

  /// Makes a group of some of this group's ranks, in the order of the list. Returns null on ranks
  /// that are not in the list. All ranks of this group must call with the same list, as in any
  /// operation. The ranks of the new group count from 0; its operations are independent of this
  /// group's. The new group is used and destroyed like any other group, and closes if a member
  /// fails. Other threads may make groups of other groups meanwhile.
  ///
  /// Throws Error: kInvalidArgument for an invalid list, kMismatch on all ranks if lists differ;
  /// neither closes this group.
  [[nodiscard]] std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks,
                                                        const GroupOptions& options = {});

  /// Like new_group(), but only the members call: they meet in `store`, under keys that no other
  /// group has used (see store::PrefixStore), with a few requests each.
  ///
  /// Throws Error like new_group(), and kTimeout with the missing ranks.
  [[nodiscard]] std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks,
                                                        store::Store& store,
                                                        const GroupOptions& options = {});

  /// Like new_group() for many groups at once, at the cost of a single group.
  [[nodiscard]] std::vector<std::shared_ptr<ProcessGroup>> new_groups(
      std::span<const std::vector<int>> lists, const GroupOptions& options = {});

  /// Splits this group into groups of equal `colour`, each in the order of `key`, then of rank in
  /// this group. Returns null for a negative colour.
  [[nodiscard]] std::shared_ptr<ProcessGroup> split(int colour,
                                                    int key,
                                                    const GroupOptions& options = {});

  /// Sends the buffer's elements to a rank, which must use a buffer of the same count and dtype.
  /// Messages are independent of the order of the group's other operations, and of each other;
  /// messages between two ranks with the same tag arrive in the order of the sends. A rank may send
  /// to itself.
  ///
  /// Returns when the memory may be reused: at that time a small message may not have been
  /// received, whereas a large message has. If all ranks send first, the asynchronous form avoids a
  /// deadlock. A message that does not fit its receive is kMismatch on both ranks; a sender that
  /// has returned by then gets the error from the next call, or from destroy().
  void send(const Buffer& buffer, int to, const SendOptions& options = {});
  Work send_async(const Buffer& buffer, int to, const SendOptions& options = {});

  /// Receives the first message with the tag from rank `from`, or from any rank (kAnySource).
  /// Returns the sending rank; for the asynchronous form, Work::source_rank() returns the rank.
  int recv(const Buffer& buffer, int from, const RecvOptions& options = {});
  Work recv_async(const Buffer& buffer, int from, const RecvOptions& options = {});

  /// Begins all messages in order, before any wait. If an argument of any message is invalid, no
  /// message is begun.
  [[nodiscard]] std::vector<Work> batch(std::span<const PointToPointOperation> operations);

  /// Returns memory that the node's ranks share, zeroed and 64-byte aligned: operations read and
  /// write this memory, and parts of it, in place. A local call. The buffer's owner frees the
  /// memory.
  ///
  /// Throws Error(kInvalidArgument) if the arena (UNISONO_ARENA_BYTES) has no room.
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype);

  /// Returns whether the buffer lies in memory of allocate(), of this group or another group of the
  /// same job.
  [[nodiscard]] bool is_symmetric(const Buffer& buffer) const;

  /// Returns the traffic of this rank's collectives with each rank of other nodes.
  [[nodiscard]] std::vector<RankTraffic> traffic() const;

  /// Returns the algorithm of the last reduction, as chosen for Algorithm::kAuto; kAuto before the
  /// first reduction, and if the backend does not report algorithms.
  [[nodiscard]] Algorithm last_algorithm() const;

  /// Waits for the operations in flight (at most until their timeouts), announces to the other
  /// ranks that this rank leaves, and releases threads, sockets and the store; memory of allocate()
  /// remains until group and buffers are gone. Receives that no message has matched after a second
  /// fail with kClosed. If another rank has yet to receive a small message of this rank, or to do a
  /// part of the last operation, destroy() waits for that rank, at most 3 s. A second call has no
  /// effect. Later operations throw kClosed.
  ///
  /// Throws Error(kMismatch), after the group has been left, if another rank has detected that
  /// ranks called different operations, and no call of this rank has thrown the error.
  void destroy();

  /// Closes the group at once: operations in flight end with kClosed and `reason`, here and on the
  /// ranks that wait for this rank. Any thread; destroy() must still be called.
  void abort(const std::string& reason);

  /// Returns the error that a layer above throws for invalid arguments. The text begins with this
  /// rank and `call`. Until this rank's next collective operation, stall reports and timeouts of
  /// ranks that wait for this rank name the refused call. The group remains usable. Any thread.
  [[nodiscard]] RefusedCall refuse(const std::string& call, const std::string& problem);

 private:
  friend comm::OperationQueue& comm::group_of(ProcessGroup& group);

  std::unique_ptr<comm::OperationQueue> group_;
};

/// Options of create_process_group() and init_process_group().
struct InitOptions {
  /// Name of the backend that executes operations; `unisono backends` lists all names.
  std::string backend = "unisono";
  /// The rendezvous method.
  ///
  /// "env://": MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK; variables that are not set
  /// are taken from srun, mpirun or Kubeflow (rendezvous::find_launch_info()).
  ///
  /// "tcp://HOST:PORT?rank=R&world_size=N": rank 0 serves the store there.
  ///
  /// "tcp://239.1.2.3:PORT?world_size=N&group_name=NAME", or an IPv6 group in brackets: processes
  /// find each other by multicast, and their ranks are assigned; the name is only needed if jobs
  /// share a multicast group.
  std::string init_method = "env://";
  /// A store in which the ranks meet instead of by a method, under keys below "unisono/"; requires
  /// `rank` and `world_size`.
  std::shared_ptr<store::Store> store = {};
  /// Opens another connection to `store`, for reports of failures; each of its requests takes at
  /// most the given time. If null, such reports wait until `store` is free.
  std::function<std::shared_ptr<store::Store>(std::chrono::milliseconds)> connect_again = {};
  /// The job's secret, if `store` already has a secret. Default: the configuration's.
  std::optional<std::string> store_secret = {};
  /// This machine's address towards `store`, which other nodes can reach. Default: the address of
  /// UNISONO_INTERFACE, or of the route out of the machine.
  std::string store_local_ip = {};
  /// The socket of `store`, if no rank serves the store; its end is logged. Must remain open as
  /// long as `store`.
  int store_fd = -1;
  /// If not negative, replace the values of the variables or the method.
  int rank = -1;
  int world_size = -1;
  /// Limit of the rendezvous, and default of operations. Default: the configuration's timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Source of UNISONO_*, RANK and other variables. Default: the environment of the process. Ranks
  /// that are threads of a process need separate environments.
  Environment environment = process_environment();
};

/// Meets the other ranks and returns the group of all ranks.
///
/// Throws Error: kInvalidArgument with a single message that names every invalid variable; kTimeout
/// with the missing ranks; kUnauthenticated, kIncompatible.
[[nodiscard]] std::shared_ptr<ProcessGroup> create_process_group(const InitOptions& options = {});

/// Calls create_process_group(), and registers the group as this process's default. When the
/// process returns from main() or calls exit(), it leaves the group as by destroy(), but waits for
/// operations in flight for at most 30 s, and for 5 s if the exit code is not 0. An error of
/// destroy() is then logged, and changes the exit code 0 to 1.
///
/// Throws Error(kInvalidArgument) if there is already a default group.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});

/// Returns the group that init_process_group() registered. Throws Error(kInvalidArgument) without a
/// default group.
[[nodiscard]] std::shared_ptr<ProcessGroup> default_process_group();

/// Destroys the default group, if there is one.
void destroy_process_group();

}  // namespace unisono
