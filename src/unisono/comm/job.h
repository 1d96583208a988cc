#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/link_costs.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/cycle_search.h"
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/group_registry.h"
#include "unisono/comm/job_start.h"
#include "unisono/comm/links.h"
#include "unisono/comm/long_waits.h"
#include "unisono/comm/only_caller.h"
#include "unisono/comm/rank_wait.h"
#include "unisono/comm/stack_dump.h"
#include "unisono/comm/watcher.h"
#include "unisono/comm/work_waits.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/node.h"

namespace unisono::comm {

/// This rank's part of a group's control block, which peers may look at after this rank has left.
struct RetiredControlBlock {
  std::int64_t offset;
  int local_world_size;
};

/// A rank's membership of a job, which its groups share: the roster, the memory, the thread that
/// watches the other ranks. It begins with the rendezvous, and ends with the last group. Not
/// copyable, does not move: its parts know each other. Thread-safe but for the constructor.
class Job {
 public:
  /// Meets the other ranks. Throws as create_process_group() does.
  explicit Job(const JobOptions& options);

  /// The group of all ranks; once.
  [[nodiscard]] std::shared_ptr<Links> make_world();

  /// A group of some ranks. `setup` is alike on all of them, and the number was expected.
  [[nodiscard]] std::shared_ptr<Links> make_group(GroupSetup setup);

  [[nodiscard]] const rendezvous::Roster& roster() const { return roster_; }

  [[nodiscard]] const rendezvous::StoreSession& session() const { return session_; }

  [[nodiscard]] const std::shared_ptr<engine::SymmetricMemory>& memory() const { return memory_; }

  [[nodiscard]] GroupRegistry& groups() { return groups_; }

  [[nodiscard]] GroupNumbers& numbers() { return numbers_; }

  [[nodiscard]] const GroupNumbers& numbers() const { return numbers_; }

  [[nodiscard]] Logger logger() const;

  [[nodiscard]] std::chrono::milliseconds stall() const { return stall_; }

  /// Whether ranks of a node may read each other's private memory.
  [[nodiscard]] SingleCopy single_copy() const { return single_copy_; }

  /// What the engines of its groups are.
  [[nodiscard]] const engine::Backend& backend() const { return backend_; }

  /// The engine of a group, before its native one, where the backend is not that alone; else null.
  [[nodiscard]] std::unique_ptr<engine::Engine> make_own_engine(const rendezvous::Roster& roster,
                                                                engine::Engine& native) const;

  /// What links cost, if it need not be measured.
  [[nodiscard]] const std::optional<LinkCosts>& links() const { return links_; }

  /// Whether a wait for a message looks whether its buffer was written to before.
  [[nodiscard]] bool checks_buffers() const { return checks_buffers_; }

  /// Of a rank of this node.
  [[nodiscard]] std::shared_ptr<const shm::Arena> arena_of(int job_rank) const;

  /// What the keys of a group's ranks in the store begin with.
  [[nodiscard]] std::string store_prefix(std::uint32_t group) const;

  /// Sends a frame to every rank of this node in `members` that can take it at once.
  void tell_peers(const rendezvous::Roster& members,
                  const std::function<std::vector<std::byte>()>& encode_frame) const noexcept;

  /// Has a rank of this node show where its threads are.
  void ask_for_stacks(int job_rank) const noexcept;

  /// Shows where this rank's threads are.
  [[nodiscard]] StackDump& stacks() { return *stacks_; }

  /// Who makes the calls of this rank's groups.
  [[nodiscard]] OnlyCaller& callers() { return callers_; }

  [[nodiscard]] const std::shared_ptr<WorkWaits>& work_waits() const { return work_waits_; }

  /// Where the launcher sees this rank's waits; null if it does not look.
  [[nodiscard]] LongWaits* long_waits() const { return long_waits_.get(); }

  /// Looks whether waits of this rank are in a circle.
  [[nodiscard]] CycleSearch& cycles() { return cycles_; }

  /// The wait that `thread` is in, while nothing else of this rank may make a call.
  [[nodiscard]] std::optional<RankWait> find_wait_of(std::uint64_t thread);

  /// Whether no group has asked this before of a failure with the same cause: a rank that gave up,
  /// for reasons of the same kind, may have done so in all its groups.
  [[nodiscard]] bool is_news(const Error& failure) UNISONO_EXCLUDES(mutex_);

  /// Memory for a group's control block, zeroed.
  [[nodiscard]] std::int64_t reserve_board(int local_world_size) UNISONO_EXCLUDES(mutex_);

  /// Gives it back once all ranks have left the control block.
  void retire_control_block(RetiredControlBlock control_block) noexcept UNISONO_EXCLUDES(mutex_);

  /// The group's part of the job is over. With the last one the job ends. `may_be_asked`: others
  /// may still look into the store, for the reason of a failure, or as they start.
  void end_group(std::uint32_t number, MetRanks met, bool may_be_asked) noexcept
      UNISONO_EXCLUDES(mutex_);

 private:
  [[nodiscard]] std::shared_ptr<Links> make_links(GroupSetup setup);
  void free_boards() UNISONO_REQUIRES(mutex_);
  void leave(bool may_be_asked) noexcept;

  // In the order in which ranks come to know each other: each member is made from those above it.
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds stall_;
  SingleCopy single_copy_;
  std::optional<LinkCosts> links_;
  bool checks_buffers_;
  LogLevel log_level_;
  engine::Backend backend_;
  rendezvous::StoreSession session_;
  std::string endpoint_;
  Fd node_listener_;
  Fd data_listener_;
  std::shared_ptr<engine::SymmetricMemory> memory_;
  rendezvous::Roster roster_;
  std::vector<shm::NodePeer> peers_;
  GroupNumbers numbers_;
  OnlyCaller callers_;
  std::shared_ptr<WorkWaits> work_waits_ = std::make_shared<WorkWaits>();
  std::unique_ptr<LongWaits> long_waits_;
  GroupRegistry groups_;
  CycleSearch cycles_;
  std::unique_ptr<StackDump> stacks_;
  std::unique_ptr<Watcher> watcher_;

  mutable Mutex mutex_;
  int n_groups_ UNISONO_GUARDED_BY(mutex_) = 0;
  bool may_be_asked_ UNISONO_GUARDED_BY(mutex_) = false;
  std::vector<RetiredControlBlock> retired_ UNISONO_GUARDED_BY(mutex_);
  std::set<std::pair<ErrorCode, std::string>> known_failures_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
