#include "unisono/launch/spawn_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/launch/rank_processes.h"

namespace unisono {
namespace {

std::atomic<int> n_calls{0};
std::atomic<bool> is_in_rank{false};

void write_reason(int fd, const std::string& reason) {
  const std::string text = reason.substr(0, launch::kMaxReasonBytes);
  [[maybe_unused]] const ssize_t n_written = ::write(fd, text.data(), text.size());
}

// Runs the rank and ends the process.
// NOLINTBEGIN(concurrency-mt-unsafe): it has one thread before fn, and the program's end is meant.
[[noreturn]] void run_rank(const std::function<void(int)>& fn, const launch::Spawned& spawned) {
  ::unsetenv(launch::kSpawnedVariable);
  ::fcntl(spawned.reason_fd, F_SETFD, FD_CLOEXEC);
  is_in_rank = true;
  try {
    fn(spawned.rank);
  } catch (const std::exception& error) {
    write_reason(spawned.reason_fd, error_text(error));
    std::exit(EXIT_FAILURE);
  } catch (...) {
    write_reason(spawned.reason_fd, "an exception that is not a std::exception");
    std::exit(EXIT_FAILURE);
  }
  std::exit(EXIT_SUCCESS);
}

// NOLINTEND(concurrency-mt-unsafe)

}  // namespace

SpawnContext::SpawnContext() = default;

SpawnContext::SpawnContext(std::unique_ptr<launch::RankProcesses> ranks)
    : ranks_(std::move(ranks)) {}

SpawnContext::SpawnContext(SpawnContext&& other) noexcept = default;
SpawnContext& SpawnContext::operator=(SpawnContext&& other) noexcept = default;
SpawnContext::~SpawnContext() = default;

bool SpawnContext::join(std::optional<std::chrono::milliseconds> timeout) {
  if (ranks_ == nullptr) {
    return true;
  }
  if (!ranks_->wait(timeout ? Deadline::after(*timeout) : Deadline::never())) {
    return false;
  }
  if (const std::optional<SpawnError>& failure = ranks_->failure()) {
    throw SpawnError(*failure);
  }
  return true;
}

std::vector<pid_t> SpawnContext::pids() const {
  return ranks_ == nullptr ? std::vector<pid_t>() : ranks_->pids();
}

SpawnContext spawn_ranks(const std::function<void(int)>& fn, const SpawnOptions& options) {
  if (is_in_rank) {
    throw Error(ErrorCode::kInvalidArgument, "spawn: a rank can't spawn others");
  }
  if (options.nprocs < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("spawn: nprocs is {}: at least 1", options.nprocs));
  }
  const int call = ++n_calls;
  if (const std::optional<launch::Spawned> spawned = launch::read_spawned(process_environment())) {
    if (spawned->call == call) {
      run_rank(fn, *spawned);
    }
    return {};  // This call has already returned in the parent program.
  }
  auto ranks = std::make_unique<launch::RankProcesses>(call, options);
  ranks->wait_until_started();
  SpawnContext context(std::move(ranks));
  if (options.join) {
    (void)context.join();
  }
  return context;
}

}  // namespace unisono
