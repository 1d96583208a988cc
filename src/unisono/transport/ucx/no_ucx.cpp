#include "unisono/base/error.h"
#include "unisono/transport/stream.h"

namespace unisono::ucx {

transport::MakeStream prepare_streams() {
  throw Error(ErrorCode::kNotFound,
              "UNISONO_TRANSPORT=ucx: this build of unisono has no UCX, as ucp/api/ucp.h was not "
              "there; install it (apt-get install libucx-dev) and build again");
}

}  // namespace unisono::ucx
