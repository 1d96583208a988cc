#include "unisono/comm/leave_at_exit.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruptible_pause.h"
#include "unisono/base/interruption.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/process_group.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::seconds kPatienceAfterAbort{1};

// A second call of exit() replaces the code, and runs the functions that are left to be run.
void exit_with_failure(int code, void* /*unused*/) {
  if (code == 0) {
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): the thread that exits calls it.
  }
}

// A group that is left on a thread of its own: exit() may have been called on a thread that
// destroy() waits for.
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
  // Shared with the thread, which may outlive this.
  struct Outcome {
    InterruptiblePause is_under_way;
    std::optional<Error> error;  // Set before the pause ends.
  };

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::thread thread_;
  bool has_left_ = false;
};

// Returns when all groups have been left, the deadline has passed, or the program interrupts it.
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
    return;  // The others find that the process has ended.
  }
}

}  // namespace unisono::comm
