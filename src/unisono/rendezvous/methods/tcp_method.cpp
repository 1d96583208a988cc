#include "unisono/rendezvous/methods/tcp_method.h"

#include <fmt/format.h>

#include <string>

#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"
#include "unisono/rendezvous/methods/rank_request.h"

namespace unisono::rendezvous {
LaunchInfo read_tcp(const InitMethod& method, int rank, int world_size) {
  std::string problems;
  if (method.host.empty()) {
    problems = "it names no host";
  }
  if (!method.path.empty()) {
    problems += fmt::format(
        "{}\"{}\" stands behind the address", problems.empty() ? "" : "; ", method.path);
  }
  const RankRequest wanted = read_rank_request(
      method,
      {.rank = rank, .world_size = world_size},
      {.options = {"rank", "world_size"},
       .needs_rank = true,
       .problems = problems,
       .advice = "give each process its rank and the world size, in InitOptions or as "
                 "tcp://10.0.0.1:29500?rank=0&world_size=4"});
  return {.master_addr = method.host,
          .master_port = method.port.value_or(kDefaultMasterPort),
          .rank = wanted.rank.value_or(0),
          .world_size = wanted.world_size};
}

}  // namespace unisono::rendezvous
