#include "unisono/transport/ucx/library.h"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include "unisono/base/error.h"
#include "unisono/base/loaded_library.h"

namespace unisono::ucx {
namespace {

Library load() {
  try {
    const LoadedLibrary ucp("libucp.so.0");
    const LoadedLibrary ucs("libucs.so.0");
    Library library{};
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
  params.mt_workers_shared = 1;  // A group's operations and messages have threads of their own.
  ucp_context_h made = nullptr;
  check(library().init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, nullptr, &made), "a context");
  return made;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

// For good: streams may end after what is static.
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

}  // namespace unisono::ucx
