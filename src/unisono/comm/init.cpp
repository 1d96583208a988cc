#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/rendezvous/agree.h"
#include "unisono/rendezvous/assign.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/gather.h"
#include "unisono/rendezvous/init_method.h"
#include "unisono/rendezvous/key_space_access.h"

namespace unisono {
namespace {

// The one documented global: a program's default group. Never destroyed, so that it can be used
// until the very end of the process.
struct DefaultGroup {
  Mutex mutex;
  std::shared_ptr<ProcessGroup> group UNISONO_GUARDED_BY(mutex);
  // How many there were before: ranks of a second one meet in other keys of the launcher's store.
  std::uint64_t generation UNISONO_GUARDED_BY(mutex) = 0;
};

DefaultGroup& default_group() {
  static DefaultGroup* const instance = new DefaultGroup;
  return *instance;
}

// One message for all that is wrong, whichever variables it is in.
std::pair<Config, rendezvous::Assignment> read_environment(const rendezvous::InitMethod& method,
                                                           const InitOptions& options) {
  std::string problems;
  const auto note = [&problems](const Error& error) {
    problems += (problems.empty() ? "" : "; ") + std::string(error.what());
  };
  std::pair<Config, rendezvous::Assignment> result;
  try {
    result.first = read_config(options.environment);
  } catch (const Error& error) {
    note(error);
  }
  try {
    result.second =
        rendezvous::assign(method, options.environment, options.rank, options.world_size);
  } catch (const Error& error) {
    note(error);
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, problems);
  }
  return result;
}

// Says by whom the ranks were started, where the program's user did not say it by RANK and the
// like.
void log_launcher(const Config& config, const rendezvous::Assignment& assignment) {
  if (assignment.rank == 0 && !assignment.launcher.empty()) {
    Logger("rank 0", config.log_level)
        .info(fmt::format("started by {}: {} ranks meet at {}:{}{}",
                          assignment.origin,
                          assignment.world_size,
                          assignment.master_addr,
                          assignment.master_port,
                          assignment.secret.empty()
                              ? ""
                              : fmt::format("; their secret is in the launcher's key space ({})",
                                            to_string(assignment.key_space.kind))));
  }
}

engine::Backend find_backend(const std::string& name) {
  try {
    return engine::find_backend(name);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("init_process_group: {}", error.what()));
  }
}

std::chrono::milliseconds timeout_of(const InitOptions& options, const Config& config) {
  const std::chrono::milliseconds timeout = options.timeout.value_or(config.timeout);
  if (timeout <= std::chrono::milliseconds::zero()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_process_group: the timeout is {} ms", timeout.count()));
  }
  return timeout;
}

// What a rank knows before it meets the others at the store. `gathered` lives until they have met.
struct Beginning {
  Config config;
  std::chrono::milliseconds timeout{};
  Deadline deadline = Deadline::never();
  rendezvous::Gathered gathered;
};

// Ranks that bring a store know the rest.
Beginning begin_in_store(const InitOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("init_process_group: with a store, rank and world_size have to be given; "
                    "they are {} and {}",
                    options.rank,
                    options.world_size));
  }
  Beginning beginning;
  beginning.config = read_config(options.environment);
  beginning.timeout = timeout_of(options, beginning.config);
  beginning.deadline = Deadline::after(beginning.timeout);
  beginning.gathered.assignment.rank = options.rank;
  beginning.gathered.assignment.world_size = options.world_size;
  return beginning;
}

Beginning begin(const InitOptions& options) {
  if (options.store != nullptr) {
    return begin_in_store(options);
  }
  const rendezvous::InitMethod method = rendezvous::parse_init_method(options.init_method);
  const rendezvous::Gather gather = rendezvous::find_gather(method);
  Beginning beginning;
  if (gather == nullptr) {
    std::tie(beginning.config, beginning.gathered.assignment) = read_environment(method, options);
  } else {
    beginning.config = read_config(options.environment);
  }
  beginning.timeout = timeout_of(options, beginning.config);
  beginning.deadline = Deadline::after(beginning.timeout);
  if (gather == nullptr) {
    beginning.gathered.assignment =
        rendezvous::agree(beginning.config, beginning.gathered.assignment, beginning.deadline);
    log_launcher(beginning.config, beginning.gathered.assignment);
  } else {
    beginning.gathered = gather({.method = method,
                                 .given = {.rank = options.rank, .world_size = options.world_size},
                                 .config = beginning.config,
                                 .environment = options.environment,
                                 .deadline = beginning.deadline});
  }
  return beginning;
}

std::shared_ptr<ProcessGroup> create(const InitOptions& options, std::uint64_t generation) {
  engine::Backend backend = find_backend(options.backend);
  const Beginning beginning = begin(options);
  auto job = std::make_shared<comm::Job>(
      comm::JobOptions{.config = beginning.config,
                       .assignment = beginning.gathered.assignment,
                       .timeout = beginning.timeout,
                       .deadline = beginning.deadline,
                       .generation = generation,
                       .backend = std::move(backend),
                       .store = {.store = options.store, .connect_again = options.connect_again}});
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
  std::shared_ptr<ProcessGroup> group;
  DefaultGroup& state = default_group();
  {
    const MutexLock lock(state.mutex);
    group = std::exchange(state.group, nullptr);
  }
  if (group != nullptr) {
    group->destroy();
  }
}

}  // namespace unisono
