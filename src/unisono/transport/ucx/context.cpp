#include "unisono/transport/ucx/context.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/thread.h"
#include "unisono/transport/ucx/ucx_stream.h"

namespace unisono::ucx {
namespace {

UcxLibrary load() {
  try {
    const LoadedLibrary ucp("libucp.so.0");
    const LoadedLibrary ucs("libucs.so.0");
    UcxLibrary library{};
    ucp.find("ucp_init_version", library.init_version);
    ucp.find("ucp_worker_create", library.worker_create);
    ucp.find("ucp_worker_destroy", library.worker_destroy);
    ucp.find("ucp_worker_get_address", library.worker_get_address);
    ucp.find("ucp_worker_release_address", library.worker_release_address);
    ucp.find("ucp_worker_get_efd", library.worker_get_efd);
    ucp.find("ucp_worker_arm", library.worker_arm);
    ucp.find("ucp_worker_progress", library.worker_progress);
    ucp.find("ucp_ep_create", library.ep_create);
    ucp.find("ucp_ep_close_nbx", library.ep_close);
    ucp.find("ucp_ep_flush_nbx", library.ep_flush);
    ucp.find("ucp_stream_send_nbx", library.stream_send);
    ucp.find("ucp_stream_recv_data_nb", library.stream_receive);
    ucp.find("ucp_stream_data_release", library.stream_release);
    ucp.find("ucp_request_check_status", library.request_status);
    ucp.find("ucp_request_free", library.request_free);
    ucs.find("ucs_status_string", library.status_string);
    return library;
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("UNISONO_TRANSPORT=ucx: UCX can't be loaded: {}; install it (apt-get "
                            "install libucx0)",
                            error.what()));
  }
}

ucp_context_h make_context() {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // Operations and messages of a group use separate threads.
  ucp_context_h made = nullptr;
  check(library().init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, nullptr, &made), "a context");
  return made;
}

}  // namespace

const UcxLibrary& library() {
  static const UcxLibrary loaded = load();
  return loaded;
}

// Never destroyed: streams may end after static objects.
ucp_context_h context() {
  static ucp_context_h const made = make_context();
  return made;
}

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) {
    throw Error(ErrorCode::kSystem,
                fmt::format("UCX can't make {}: {}", what, library().status_string(status)));
  }
}

namespace {

// Pause between rounds. The ranks' own threads also drive UCX while waiting.
constexpr std::chrono::microseconds kPause{500};

constexpr int kLookMs = 1000;

}  // namespace

// Never destroyed: streams may end after static objects.
ProgressThread& ProgressThread::instance() {
  static auto* const thread = new ProgressThread();
  return *thread;
}

void ProgressThread::add(UcxStream& stream) {
  const MutexLock changing(changing_);
  if (!thread_.joinable()) {
    wakeup_ = std::make_unique<net::Wakeup>();
    is_stopping_ = false;
    thread_ = start_thread(
        "unisono-ucx", "can't start the thread that moves UCX's bytes", [this] { run(); });
  }
  {
    const MutexLock lock(mutex_);
    streams_.push_back(&stream);
  }
  wakeup_->wake();
}

void ProgressThread::remove(UcxStream& stream) noexcept {
  const MutexLock changing(changing_);
  bool is_last = false;
  {
    const MutexLock lock(mutex_);
    std::erase(streams_, &stream);
    is_last = streams_.empty();
  }
  if (is_last && thread_.joinable()) {
    is_stopping_ = true;
    wakeup_->wake();
    thread_.join();
  }
}

void ProgressThread::run() noexcept {
  while (!is_stopping_) {
    std::vector<pollfd> polls;
    bool is_busy = false;
    try {
      polls.push_back({.fd = wakeup_->fd(), .events = POLLIN, .revents = 0});
      const MutexLock lock(mutex_);
      for (UcxStream* const stream : streams_) {
        is_busy = !stream->progress(polls) || is_busy;
      }
    } catch (const std::exception&) {
      is_busy = true;  // For example out of memory.
    }
    if (!is_busy) {
      (void)::poll(polls.data(), polls.size(), kLookMs);
      wakeup_->clear();
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace unisono::ucx
