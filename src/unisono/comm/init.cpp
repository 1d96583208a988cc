#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/crash_report.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/comm/backend_choice.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/leave_at_exit.h"
#include "unisono/comm/process_group.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/resolve_rendezvous.h"

namespace unisono {
namespace {

// The one documented global: a program's default group. Never destroyed, so that it can be used
// until the very end of the process.
struct DefaultGroup {
  Mutex mutex;
  std::shared_ptr<ProcessGroup> group UNISONO_GUARDED_BY(mutex);
  // How many there were before: ranks of a second one meet in other keys of the launcher's store.
  std::uint64_t generation UNISONO_GUARDED_BY(mutex) = 0;
  // Who says goodbye when it exits: no child of fork(), which may hold the mutex for ever.
  std::atomic<pid_t> process = -1;
};

DefaultGroup& default_group() {
  static DefaultGroup* const instance = new DefaultGroup;
  return *instance;
}

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

comm::BackendChoice choose_backend(const InitOptions& options) {
  try {
    return comm::choose_backend(options.backend, options.environment);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("init_process_group: {}", error.what()));
  }
}

// Ranks that bring a store know the rest.
rendezvous::RendezvousInfo place_in_store(const InitOptions& options) {
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
  info.config = read_config(options.environment);
  info.timeout = rendezvous::choose_timeout(options.timeout, info.config);
  info.deadline = Deadline::after(info.timeout);
  info.discovered.launch_info.rank = options.rank;
  info.discovered.launch_info.world_size = options.world_size;
  return info;
}

rendezvous::RendezvousInfo resolve_rendezvous(const InitOptions& options) {
  if (options.store != nullptr) {
    return place_in_store(options);
  }
  return rendezvous::resolve_rendezvous(
      {.init_method = options.init_method,
       .given = {.rank = options.rank, .world_size = options.world_size},
       .timeout = options.timeout,
       .environment = options.environment});
}

// Where the launcher looks for the waits of this rank; empty for a job whose ranks have other
// numbers than the launcher has given.
std::string find_wait_file(const Environment& environment,
                           const rendezvous::LaunchInfo& launch_info) {
  const bool is_launchers = environment("RANK") == std::to_string(launch_info.rank) &&
                            environment("WORLD_SIZE") == std::to_string(launch_info.world_size);
  return is_launchers ? environment(kWaitFileVariable).value_or("") : "";
}

std::shared_ptr<ProcessGroup> create(const InitOptions& options, std::uint64_t generation) {
  comm::BackendChoice backend = choose_backend(options);
  // `info.discovered` lives until the ranks have met.
  const rendezvous::RendezvousInfo info = resolve_rendezvous(options);
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
      std::make_unique<comm::Group>(std::move(job), std::move(world)));
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
