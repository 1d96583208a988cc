#pragma once

#include <ucp/api/ucp.h>

namespace unisono::ucx {

/// The functions of libucp that are used here.
struct Library {
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

/// Loads it, once. Throws Error(kNotFound) that says what to install.
[[nodiscard]] const Library& library();

/// The process's context, made with the first call. Throws Error(kSystem).
[[nodiscard]] ucp_context_h context();

/// Throws Error(kSystem) that says what failed, and why, unless `status` is good.
void check(ucs_status_t status, const char* what);

}  // namespace unisono::ucx
