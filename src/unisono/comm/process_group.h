#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/comm/blocks.h"
#include "unisono/comm/options.h"
#include "unisono/comm/refused_call.h"
#include "unisono/comm/work.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/traffic.h"

namespace unisono {

class ProcessGroup;

namespace comm {
class Group;
[[nodiscard]] Group& group_of(ProcessGroup& group);
}  // namespace comm

namespace store {
class Store;
}

/// A set of ranks that communicate.
///
/// Every rank calls the same operations in the same order; a group carries its operations out in
/// that order. Members may be called from any thread, but the order of calls from several threads
/// is then the caller's affair. Buffers that an operation writes must not be touched until it has
/// ended. Operations throw Error: kInvalidArgument before anything is sent, and the group goes on.
/// Every other error (kMismatch when ranks call different operations, kPeerLost, kTimeout, ...)
/// closes the group: output buffers are then unspecified, and every later call throws kClosed with
/// the first cause.
class ProcessGroup {
 public:
  explicit ProcessGroup(std::unique_ptr<comm::Group> group);

  /// As destroy().
  ~ProcessGroup();

  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  ProcessGroup(ProcessGroup&&) = delete;
  ProcessGroup& operator=(ProcessGroup&&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int world_size() const;

  /// This rank's place among the ranks of its node, from 0 in order of rank.
  [[nodiscard]] int local_rank() const;

  /// Number of ranks on this rank's node.
  [[nodiscard]] int local_world_size() const;

  /// Who is in the group, by rank in it; members keep their ranks in the job.
  [[nodiscard]] const rendezvous::Roster& roster() const;

  /// Combines the ranks' `in` element by element into every rank's `out`.
  ///
  /// The result is the canonical tree's, bit for bit the same on every rank, however it is
  /// computed. `in` and `out` have equal count and dtype on all ranks, and are the same memory or
  /// do not overlap. Memory from allocate() is not copied.
  void all_reduce(const Buffer& in, const Buffer& out, const AllReduceOptions& options = {});
  void all_reduce(const Buffer& in_out, const AllReduceOptions& options = {});
  Work all_reduce_async(const Buffer& in, const Buffer& out, const AllReduceOptions& options = {});
  Work all_reduce_async(const Buffer& in_out, const AllReduceOptions& options = {});

  /// Many at once, of one dtype, at the cost of one: for small buffers, which are put together. All
  /// ranks pass buffers of the same sizes in the same order.
  void all_reduce_coalesced(std::span<const Buffer> in_out, const AllReduceOptions& options = {});
  Work all_reduce_coalesced_async(std::span<const Buffer> in_out,
                                  const AllReduceOptions& options = {});

  /// reduce_scatter() of each of `ins` into each of `outs`, in the same way. Blocks are equal; an
  /// output may be its input's block of this rank.
  void reduce_scatter_coalesced(std::span<const Buffer> ins,
                                std::span<const Buffer> outs,
                                const ReduceScatterOptions& options = {});
  Work reduce_scatter_coalesced_async(std::span<const Buffer> ins,
                                      std::span<const Buffer> outs,
                                      const ReduceScatterOptions& options = {});

  /// all_gather() of each of `ins` into each of `outs`, in the same way. Blocks are equal; an input
  /// may be its output's block of this rank.
  void all_gather_coalesced(std::span<const Buffer> ins,
                            std::span<const Buffer> outs,
                            const AllGatherOptions& options = {});
  Work all_gather_coalesced_async(std::span<const Buffer> ins,
                                  std::span<const Buffer> outs,
                                  const AllGatherOptions& options = {});

  /// As all_reduce(), but only the root gets the result: the other ranks' `out` is not looked at,
  /// and may be empty. No rank's `in` changes, unless the root's is its `out`.
  void reduce(const Buffer& in, const Buffer& out, const ReduceOptions& options = {});
  Work reduce_async(const Buffer& in, const Buffer& out, const ReduceOptions& options = {});

  /// Combines the ranks' `in`, of a block for each rank, and gives rank r block r of the result in
  /// its `out`. Blocks are equal, or as large as `options.counts` says; in a list each lies
  /// elsewhere. A rank's own block may be its `out`.
  void reduce_scatter(const Blocks& in,
                      const Buffer& out,
                      const ReduceScatterOptions& options = {});
  Work reduce_scatter_async(const Blocks& in,
                            const Buffer& out,
                            const ReduceScatterOptions& options = {});

  /// Copies the root's elements to every rank.
  void broadcast(const Buffer& buffer, const BroadcastOptions& options = {});
  Work broadcast_async(const Buffer& buffer, const BroadcastOptions& options = {});

  // In what follows a rank has a block for each rank: in one buffer, one after the other (of equal
  // size, or as the options' counts say), or in a list with an entry per rank, as a vector of them.
  // Inputs and outputs overlap nowhere, save that a rank's own block may be in place already.

  /// Gives every rank every rank's `in`, in order of rank.
  void all_gather(const Buffer& in, const Blocks& out, const AllGatherOptions& options = {});
  Work all_gather_async(const Buffer& in, const Blocks& out, const AllGatherOptions& options = {});

  /// Gives the root every rank's `in`. The other ranks pass Buffer() or an empty list for the
  /// output. In a list, blocks may have any size.
  void gather(const Buffer& in, const Blocks& out, const GatherOptions& options = {});
  Work gather_async(const Buffer& in, const Blocks& out, const GatherOptions& options = {});

  /// Gives each rank its block of the root's input. The other ranks pass Buffer() or an empty list
  /// for the input. In a list, blocks may have any size.
  void scatter(const Blocks& in, const Buffer& out, const ScatterOptions& options = {});
  Work scatter_async(const Blocks& in, const Buffer& out, const ScatterOptions& options = {});

  /// Gives each rank one block of every rank: rank r's block s becomes rank s's block r. In lists,
  /// both or neither, blocks may have any size.
  void all_to_all(const Blocks& in, const Blocks& out, const AllToAllOptions& options = {});
  Work all_to_all_async(const Blocks& in, const Blocks& out, const AllToAllOptions& options = {});

  /// Returns when every rank has called it.
  void barrier(const BarrierOptions& options = {});
  Work barrier_async(const BarrierOptions& options = {});

  /// A barrier to find out who is missing: give it a short timeout, whose error, a TimedOut, then
  /// names and lists all that did not come. A rank that calls barrier() meanwhile is a mismatch.
  /// Each rank sends a message to every rank of another node.
  void monitored_barrier(const BarrierOptions& options = {});
  Work monitored_barrier_async(const BarrierOptions& options = {});

  /// A group of some of this group's ranks, in the order of the list; null on ranks that are not in
  /// it. All ranks of this group call it, with the same list, as one of its operations. The new
  /// group has ranks of its own, from 0; its operations go on beside this one's, and it is used and
  /// destroyed like any other. It closes when one of its own ranks fails. Groups may be made of
  /// other groups meanwhile, by other threads.
  ///
  /// Throws Error: kInvalidArgument for a wrong list, kMismatch on all ranks where lists differ;
  /// neither closes this group.
  [[nodiscard]] std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks,
                                                        const GroupOptions& options = {});

  /// The same for ranks of which only the group's own call it: they meet in `store`, in keys that
  /// no other group has used (see store::PrefixStore), with a fixed number of requests each.
  ///
  /// Throws Error as new_group(), and kTimeout with the ranks that have not come.
  [[nodiscard]] std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks,
                                                        store::Store& store,
                                                        const GroupOptions& options = {});

  /// As new_group() for many groups at once, at the cost of one.
  [[nodiscard]] std::vector<std::shared_ptr<ProcessGroup>> new_groups(
      std::span<const std::vector<int>> lists, const GroupOptions& options = {});

  /// Parts this group into groups of equal `colour`, in each by `key`, then by rank here. Null for
  /// a negative colour.
  [[nodiscard]] std::shared_ptr<ProcessGroup> split(int colour,
                                                    int key,
                                                    const GroupOptions& options = {});

  /// Sends the buffer's elements to a rank, which receives them with a buffer of the same count and
  /// dtype. Messages are not in the order of the group's other operations: they go on beside them,
  /// and beside each other; those between two ranks with the same tag arrive in the order they were
  /// sent. A rank may send to itself.
  ///
  /// Returns when the memory may be used again: a small message may not have been received then, a
  /// large one has. So that ranks which all send first do not wait for each other, use the
  /// asynchronous form. A message that does not fit its receive is kMismatch on both ranks; a
  /// sender that has returned by then gets it from its next call, or from destroy().
  void send(const Buffer& buffer, int to, const SendOptions& options = {});
  Work send_async(const Buffer& buffer, int to, const SendOptions& options = {});

  /// Receives the first message from rank `from`, or from any (kAnySource), that has the tag.
  /// Returns the rank it came from; of the asynchronous form, Work::source_rank() does.
  int recv(const Buffer& buffer, int from, const RecvOptions& options = {});
  Work recv_async(const Buffer& buffer, int from, const RecvOptions& options = {});

  /// Begins all of them, in their order, before any is waited for. When an argument of one is wrong
  /// none is begun.
  [[nodiscard]] std::vector<Work> batch(std::span<const PointToPointOperation> operations);

  /// Memory that the node's ranks share, zeroed, 64-byte aligned: operations on it, and on parts of
  /// it, read and write it in place. A local call. The buffer's owner frees it.
  ///
  /// Throws Error(kInvalidArgument) when the arena (UNISONO_ARENA_BYTES) has no room for it.
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype);

  /// Whether the buffer lies in memory of allocate(), of this group or another of the same job.
  [[nodiscard]] bool is_symmetric(const Buffer& buffer) const;

  /// What this rank's collectives have exchanged with each rank of other nodes so far.
  [[nodiscard]] std::vector<RankTraffic> traffic() const;

  /// How the last reduction was carried out: what was chosen where the caller left it to
  /// Algorithm::kAuto. That itself before the first, and where the backend does not say.
  [[nodiscard]] Algorithm last_algorithm() const;

  /// Waits for the operations in flight (at most until their timeouts), tells the other ranks that
  /// this one leaves, and lets go of threads, sockets and the store; memory of allocate() stays
  /// until group and buffers are gone. Receives for which no message has come after a second fail
  /// with kClosed. Where another rank has yet to receive a small message of this one, or to do its
  /// part of the last operation, it is waited for, 3 s at most. A second call does nothing. Later
  /// operations throw kClosed.
  ///
  /// Throws Error(kMismatch), when the group has been left, where another rank has found that ranks
  /// have called different things, and no call of this one has thrown that.
  void destroy();

  /// Closes the group at once: operations in flight end with kClosed and `reason`, here and on the
  /// ranks that wait for this one. From any thread; destroy() is still to be called.
  void abort(const std::string& reason);

  /// For layers above, which check arguments of their own: the error to throw. It begins with this
  /// rank and `call`; until this rank's next collective operation, ranks that wait for it name
  /// the refused call in their stall reports and timeouts. The group goes on. From any thread.
  [[nodiscard]] RefusedCall refuse(const std::string& call, const std::string& problem);

 private:
  friend comm::Group& comm::group_of(ProcessGroup& group);

  std::unique_ptr<comm::Group> group_;
};

struct InitOptions {
  /// What carries the operations out: `unisono backends` lists them.
  std::string backend = "unisono";
  /// How ranks meet.
  ///
  /// "env://": MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK; what is not set of them
  /// comes from srun, mpirun or Kubeflow (rendezvous::find_launch_info()).
  ///
  /// "tcp://HOST:PORT?rank=R&world_size=N": rank 0 serves the store there.
  ///
  /// "tcp://239.1.2.3:PORT?world_size=N&group_name=NAME", or an IPv6 group in brackets: processes
  /// find each other by multicast and are given their ranks; the name is only needed where jobs
  /// share a group.
  std::string init_method = "env://";
  /// Ranks meet in this store instead of by a method, in keys below "unisono/"; `rank` and
  /// `world_size` have to be given then.
  std::shared_ptr<store::Store> store = {};
  /// Another connection to `store`, whose requests take at most so long each, for news of failures:
  /// where there is none, they wait until `store` is free.
  std::function<std::shared_ptr<store::Store>(std::chrono::milliseconds)> connect_again = {};
  /// The job's secret, where `store` has one already. Default: as the configuration has it.
  std::optional<std::string> store_secret = {};
  /// This machine's address by which `store` was reached, which other nodes can reach. Default: the
  /// one that UNISONO_INTERFACE names, or that leads out of the machine.
  std::string store_local_ip = {};
  /// The socket of `store`, where it is served by no rank: that it ended is logged then. It stays
  /// open as long as `store`.
  int store_fd = -1;
  /// Instead of those of the variables or the method when not negative.
  int rank = -1;
  int world_size = -1;
  /// For the rendezvous, and for operations that are given none. Default: the configuration's.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Where UNISONO_*, RANK and the rest are read. Default: the process's environment. Ranks that
  /// are threads of one process each bring their own.
  Environment environment = process_environment();
};

/// Meets the other ranks and returns the group of all.
///
/// Throws Error: kInvalidArgument with one message that names every wrong variable; kTimeout with
/// the ranks that are missing; kUnauthenticated, kIncompatible.
[[nodiscard]] std::shared_ptr<ProcessGroup> create_process_group(const InitOptions& options = {});

/// create_process_group(), and registers the group as this process's default. A process that
/// returns from main, or calls exit(), leaves it as by destroy(), but waits for what is under way
/// for 30 s only, and with an exit code other than 0 for 5 s. What destroy() would throw is logged
/// then, and makes an exit code of 0 a 1.
///
/// Throws Error(kInvalidArgument) when there is a default group already.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});

/// The group that init_process_group() registered. Throws Error(kInvalidArgument) before that.
[[nodiscard]] std::shared_ptr<ProcessGroup> default_process_group();

/// Destroys the default group, if there is one.
void destroy_process_group();

}  // namespace unisono
