#include "unisono/rendezvous/assign.h"

#include <fmt/format.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"
#include "unisono/rendezvous/methods/tcp_method.h"

namespace unisono::rendezvous {

LaunchInfo assign(const InitMethod& method,
                  const Environment& environment,
                  int rank,
                  int world_size) {
  if (method.scheme == "tcp") {
    return read_tcp(method, rank, world_size);
  }
  if (method.text != "env://") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": nothing may stand behind env://; rank and "
                            "world_size are options of the program or environment variables",
                            method.text));
  }
  return find_launch_info(environment, rank, world_size);
}

}  // namespace unisono::rendezvous
