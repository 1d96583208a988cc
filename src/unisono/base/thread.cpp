#include "unisono/base/thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "unisono/base/error.h"

namespace unisono {
namespace {

thread_local bool is_started = false;

}  // namespace

bool is_started_thread() {
  return is_started;
}

std::thread start_thread(const char* name, const std::string& failure, std::function<void()> body) {
  try {
    return std::thread([name, body = std::move(body)] {
      ::pthread_setname_np(::pthread_self(), name);
      is_started = true;
      body();
    });
  } catch (const std::system_error& error) {
    throw Error(
        ErrorCode::kSystem,
        fmt::format("{}: {}; raise the limit of processes (ulimit -u)", failure, error.what()));
  }
}

}  // namespace unisono
