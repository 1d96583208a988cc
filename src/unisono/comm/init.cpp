#include "unisono/comm/init.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/crash_report.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/base/wait_record.h"
#include "unisono/comm/job.h"
#include "unisono/comm/operation_queue.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/local_rank.h"
#include "unisono/rendezvous/resolve_rendezvous.h"

namespace unisono::comm {
namespace {

constexpr const char* kFallbackVariable = "UNISONO_BACKEND_FALLBACK";
// The backend that all ranks use after a fallback.
constexpr std::string_view kNative = "unisono";

// Longer lists of ranks make a message useless.
constexpr std::size_t kMostRanks = 8;

// Returns "rank 3" or "ranks 0, 1 and 6 more".
std::string list_ranks(const std::vector<int>& ranks) {
  const auto shown = std::span(ranks).first(std::min(ranks.size(), kMostRanks));
  return fmt::format(
      "{} {}{}",
      ranks.size() == 1 ? "rank" : "ranks",
      fmt::join(shown, ", "),
      shown.size() < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown.size()) : "");
}

// Returns std::nullopt for an invalid value, which the rendezvous reports.
std::optional<int> valid_local_rank(const Environment& environment) {
  try {
    return rendezvous::own_local_rank(environment);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

BackendChoice choose_backend(const std::string& name,
                             const ParsedConfig& settings,
                             const Environment& environment) {
  const engine::Backend wanted = engine::look_up_backend(name);
  try {
    engine::Backend backend =
        engine::prepared(wanted,
                         {.mpi = rendezvous::find_mpi_implementation(environment),
                          .local_rank = valid_local_rank(environment)});
    const bool is_native = backend.make == nullptr;
    return {.backend = std::move(backend),
            .need = {.falls_back = is_native || settings.config.falls_back}};
  } catch (const Error& error) {
    settings.check();
    if (!settings.config.falls_back) {
      throw;
    }
    return {.backend = engine::look_up_backend(kNative), .need = {.obstacle = error.what()}};
  }
}

engine::Backend agreed_backend(const engine::Backend& chosen,
                               const rendezvous::Roster& roster,
                               const base::Logger& logger) {
  std::map<std::string, std::vector<int>> obstacles;
  for (const rendezvous::RosterMember& member : roster.members) {
    if (!member.backend.obstacle.empty()) {
      obstacles[member.backend.obstacle].push_back(member.rank);
    }
  }
  if (obstacles.empty()) {
    return chosen;
  }
  if (roster.rank == 0) {
    std::string text;
    for (const auto& [obstacle, ranks] : obstacles) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", obstacle, list_ranks(ranks));
    }
    logger.warning(fmt::format(
        "{}; all ranks use backend {} instead, as {} allows", text, kNative, kFallbackVariable));
  }
  return engine::look_up_backend(kNative);
}

const engine::Backend& backend_of(ProcessGroup& group) {
  return group_of(group).job()->backend();
}

namespace {

// Time for an aborted group to leave.
constexpr std::chrono::seconds kPatienceAfterAbort{1};

// A second call of exit() replaces the exit code, and runs the remaining exit functions.
void exit_with_failure(int code, void* /*unused*/) {
  if (code == 0) {
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): the thread that exits calls it.
  }
}

// Leaves a group on a separate thread, because exit() may have been called on a thread for which
// destroy() waits.
class Leaving {
 public:
  explicit Leaving(std::shared_ptr<ProcessGroup> group)
      : group_(std::move(group)),
        thread_(start_thread("unisono-exit",
                             "the process can't leave its group",
                             [group = group_, outcome = outcome_] {
                               try {
                                 group->destroy();
                               } catch (const Error& error) {
                                 outcome->error = error;
                               } catch (const std::exception&) {
                                 outcome->error.reset();  // Interrupted: the group has been left.
                               }
                               outcome->is_under_way.end();
                             })) {}

  ~Leaving() {
    if (thread_.joinable()) {
      thread_.detach();
    }
  }

  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
  Leaving(Leaving&&) = default;
  Leaving& operator=(Leaving&&) = delete;

  // Returns whether the group has been left by the deadline.
  [[nodiscard]] bool wait_until(Deadline deadline) {
    has_left_ = has_left_ || !outcome_->is_under_way.wait_until(deadline);
    return has_left_;
  }

  void abort(const std::string& reason) { group_->abort(reason); }

  // Logs a mismatch that destroy() threw, which also makes the exit fail.
  void report_mismatch() {
    if (!has_left_) {
      return;
    }
    thread_.join();
    const std::optional<Error>& error = outcome_->error;
    if (error && error->code() == ErrorCode::kMismatch) {
      group_of(*group_).job()->logger().error(error->what());
      (void)::on_exit(exit_with_failure, nullptr);
    }
  }

 private:
  // Shared with the thread, which may outlive the object.
  struct Outcome {
    InterruptiblePause is_under_way;
    std::optional<Error> error;  // Set before the pause ends.
  };

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::thread thread_;
  bool has_left_ = false;
};

// Waits until all groups have been left, the deadline has passed, or the program interrupts the
// wait.
void wait_for_all(std::vector<Leaving>& all, Deadline deadline) {
  try {
    for (Leaving& each : all) {
      while (!each.wait_until(earlier(deadline, next_interruption_check())) &&
             !deadline.has_passed()) {
        check_interruption();
      }
    }
  } catch (const std::exception&) {
    return;  // The interruption is reported by its source.
  }
}

}  // namespace

void leave_at_exit(std::span<const std::shared_ptr<ProcessGroup>> groups,
                   std::chrono::seconds patience) noexcept {
  try {
    std::vector<Leaving> all;
    all.reserve(groups.size());
    for (const std::shared_ptr<ProcessGroup>& group : groups) {
      all.emplace_back(group);
    }
    wait_for_all(all, Deadline::after(patience));
    const std::string reason = fmt::format(
        "its process ended while operations were under way, which did not end within {} s",
        patience.count());
    for (Leaving& each : all) {
      if (!each.wait_until(Deadline::after(std::chrono::seconds(0)))) {
        each.abort(reason);
      }
    }
    const Deadline deadline = Deadline::after(kPatienceAfterAbort);
    for (Leaving& each : all) {
      (void)each.wait_until(deadline);
      each.report_mismatch();
    }
  } catch (const std::exception&) {
    return;  // The other ranks detect that the process has ended.
  }
}

}  // namespace unisono::comm

namespace unisono {
namespace {

// The default group of a program, the only documented global. Never destroyed, so that it is usable
// until the end of the process.
struct DefaultGroup {
  Mutex mutex;
  std::shared_ptr<ProcessGroup> group UNISONO_GUARDED_BY(mutex);
  // Number of earlier groups. Ranks of a second group use other keys in the launcher's store.
  std::uint64_t generation UNISONO_GUARDED_BY(mutex) = 0;
  // PID that registered the exit handler. A child of fork() must not run the handler: its copy of
  // the mutex may be locked.
  std::atomic<pid_t> process = -1;
};

DefaultGroup& default_group() {
  static DefaultGroup* const instance = new DefaultGroup;
  return *instance;
}

// Removes the default group, so that a single caller destroys it.
std::shared_ptr<ProcessGroup> take_group() {
  DefaultGroup& state = default_group();
  const MutexLock lock(state.mutex);
  return std::exchange(state.group, nullptr);
}

void leave_default_group_at_exit(int exit_code, void* /*unused*/) {
  if (default_group().process != ::getpid()) {
    return;
  }
  if (const std::shared_ptr<ProcessGroup> group = take_group()) {
    comm::leave_at_exit(std::span(&group, 1),
                        exit_code == 0 ? comm::kExitPatience : comm::kFailedExitPatience);
  }
}

comm::BackendChoice choose_backend(const InitOptions& options, const ParsedConfig& settings) {
  try {
    return comm::choose_backend(options.backend, settings, options.environment);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("init_process_group: {}", error.what()));
  }
}

// Rank and world size must be given together with a store; no rendezvous method is needed.
rendezvous::RendezvousInfo place_in_store(const InitOptions& options,
                                          const ParsedConfig& settings) {
  if (options.init_method != InitOptions().init_method) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_process_group: there are both a store and init_method \"{}\"; "
                            "give one of them",
                            options.init_method));
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("init_process_group: with a store, rank and world_size have to be given; "
                    "they are {} and {}",
                    options.rank,
                    options.world_size));
  }
  rendezvous::RendezvousInfo info;
  settings.check();
  info.config = settings.config;
  info.timeout = rendezvous::choose_timeout(options.timeout, info.config);
  info.deadline = Deadline::after(info.timeout);
  info.discovered.launch_info.rank = options.rank;
  info.discovered.launch_info.world_size = options.world_size;
  return info;
}

rendezvous::RendezvousInfo resolve_rendezvous(const InitOptions& options,
                                              const ParsedConfig& settings) {
  if (options.store != nullptr) {
    return place_in_store(options, settings);
  }
  return rendezvous::resolve_rendezvous(
      {.init_method = options.init_method,
       .given = {.rank = options.rank, .world_size = options.world_size},
       .timeout = options.timeout,
       .environment = options.environment,
       .settings = settings});
}

// Returns the file in which the launcher reads the waits of this rank; empty for a job whose ranks
// have other numbers than the launcher's.
std::string find_wait_file(const Environment& environment,
                           const rendezvous::LaunchInfo& launch_info) {
  const bool is_launchers = environment("RANK") == std::to_string(launch_info.rank) &&
                            environment("WORLD_SIZE") == std::to_string(launch_info.world_size);
  return is_launchers ? environment(kWaitFileVariable).value_or("") : "";
}

std::shared_ptr<ProcessGroup> create(const InitOptions& options, std::uint64_t generation) {
  const ParsedConfig settings = parse_config(options.environment);
  comm::BackendChoice backend = choose_backend(options, settings);
  // `info.discovered` must live until the ranks have met.
  const rendezvous::RendezvousInfo info = resolve_rendezvous(options, settings);
  if (info.config.reports_crashes) {
    install_crash_reports(fmt::format("rank {}", info.discovered.launch_info.rank));
  }
  const rendezvous::LaunchInfo& launch_info = info.discovered.launch_info;
  auto job = std::make_shared<comm::Job>(
      comm::JobOptions{.config = info.config,
                       .launch_info = launch_info,
                       .timeout = info.timeout,
                       .deadline = info.deadline,
                       .generation = generation,
                       .backend = std::move(backend),
                       .store = {.store = options.store,
                                 .connect_again = options.connect_again,
                                 .secret = options.store_secret,
                                 .local_ip = options.store_local_ip,
                                 .fd = options.store_fd},
                       .wait_file = find_wait_file(options.environment, launch_info)});
  auto world = job->make_world();
  return std::make_shared<ProcessGroup>(
      std::make_unique<comm::OperationQueue>(std::move(job), std::move(world)));
}

}  // namespace

std::shared_ptr<ProcessGroup> create_process_group(const InitOptions& options) {
  return create(options, 0);
}

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  DefaultGroup& state = default_group();
  std::uint64_t generation = 0;
  {
    const MutexLock lock(state.mutex);
    if (state.group != nullptr) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "init_process_group: there is a default group already; destroy_process_group() ends it");
    }
    generation = state.generation;
  }
  std::shared_ptr<ProcessGroup> group = create(options, generation);
  const MutexLock lock(state.mutex);
  if (state.group != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "init_process_group: another thread made the default group at the same time");
  }
  state.group = group;
  ++state.generation;
  if (state.process.exchange(::getpid()) != ::getpid()) {
    (void)::on_exit(leave_default_group_at_exit, nullptr);
  }
  return group;
}

std::shared_ptr<ProcessGroup> default_process_group() {
  DefaultGroup& state = default_group();
  const MutexLock lock(state.mutex);
  if (state.group == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is no default process group: call init_process_group() first");
  }
  return state.group;
}

void destroy_process_group() {
  if (const std::shared_ptr<ProcessGroup> group = take_group()) {
    group->destroy();
  }
}

}  // namespace unisono
