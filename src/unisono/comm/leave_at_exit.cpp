#include "unisono/comm/leave_at_exit.h"

#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "unisono/base/deadline.h"
#include "unisono/base/interruptible_pause.h"
#include "unisono/base/thread.h"
#include "unisono/comm/process_group.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kPatienceAfterAbort{1};

void destroy(ProcessGroup& group) noexcept {
  try {
    group.destroy();
  } catch (const std::exception&) {
    return;  // Interrupted: the group has been left.
  }
}

}  // namespace

// By a thread of its own: exit() may have been called where destroy() waits for its caller.
void leave_at_exit(const std::shared_ptr<ProcessGroup>& group) noexcept {
  try {
    const auto under_way = std::make_shared<InterruptiblePause>();
    std::thread leaving =
        start_thread("unisono-exit", "the process can't leave its group", [group, under_way] {
          destroy(*group);
          under_way->end();
        });
    bool has_left = !under_way->wait_until(Deadline::after(kPatience));
    if (!has_left) {
      group->abort("its process ended while operations were under way");
      has_left = !under_way->wait_until(Deadline::after(kPatienceAfterAbort));
    }
    if (has_left) {
      leaving.join();
    } else {
      leaving.detach();
    }
  } catch (const std::exception&) {
    return;  // The others find that the process has ended.
  }
}

}  // namespace unisono::comm
