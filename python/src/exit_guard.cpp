#include "exit_guard.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "unisono/base/thread.h"

namespace unisono::python {
namespace {

std::atomic<bool> is_held = false;
std::thread::id last_thread;  // Written before is_held is set.

}  // namespace

void hold_waiting_threads() {
  last_thread = std::this_thread::get_id();
  is_held = true;
}

ExitGuard::~ExitGuard() {
  while (is_held && std::this_thread::get_id() != last_thread && !is_started_thread()) {
    ::pause();
  }
}

}  // namespace unisono::python
