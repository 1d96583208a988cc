#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/net/event_loop.h"

namespace unisono::ucx {

/// The functions of libucp and libucs used here.
struct UcxLibrary {
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close;
  decltype(&ucp_ep_flush_nbx) ep_flush;
  decltype(&ucp_stream_send_nbx) stream_send;
  decltype(&ucp_stream_recv_data_nb) stream_receive;
  decltype(&ucp_stream_data_release) stream_release;
  decltype(&ucp_request_check_status) request_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

/// Returns the library, loaded by the first call. Throws Error(kNotFound), which names the package
/// to install.
[[nodiscard]] const UcxLibrary& library();

/// Returns the process's context, created by the first call. Throws Error(kSystem).
[[nodiscard]] ucp_context_h context();

/// Throws Error(kSystem) unless `status` is UCS_OK. `what` names the object that could not be made.
void check(ucs_status_t status, const char* what);

class UcxStream;

/// Drives UCX while the ranks' own threads are busy: sends the data that UCX has accepted and
/// answers requests of the peers' UCX, as the kernel does for TCP.
///
/// A single instance per process; the thread runs while there are streams. add() and remove() may
/// be called by any thread. Only add() throws.
class ProgressThread {
 public:
  static ProgressThread& instance();

  /// Throws Error(kSystem) if no thread can be started.
  void add(UcxStream& stream) UNISONO_EXCLUDES(changing_) UNISONO_EXCLUDES(mutex_);

  /// Removes the stream. The thread does not access the stream after the call.
  void remove(UcxStream& stream) noexcept UNISONO_EXCLUDES(changing_) UNISONO_EXCLUDES(mutex_);

  /// Wakes the thread because a stream has work. Any thread, while a stream is registered.
  void wake() const noexcept { wakeup_->wake(); }

 private:
  void run() noexcept UNISONO_EXCLUDES(mutex_);

  Mutex changing_;
  Mutex mutex_;
  std::vector<UcxStream*> streams_ UNISONO_GUARDED_BY(mutex_);
  std::unique_ptr<net::Wakeup> wakeup_;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_ UNISONO_GUARDED_BY(changing_);
};

}  // namespace unisono::ucx
