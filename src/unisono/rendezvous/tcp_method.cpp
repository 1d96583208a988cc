#include "unisono/rendezvous/tcp_method.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/init_method.h"

namespace unisono::rendezvous {
namespace {

std::optional<int> given_or(int given, const InitMethod& method, const char* name, int least) {
  return given >= 0 ? given : method.number(name, least);
}

}  // namespace

Assignment read_tcp(const InitMethod& method, int rank, int world_size) {
  std::string problems;
  const auto complain = [&problems](const std::string& problem) {
    problems += (problems.empty() ? "" : "; ") + problem;
  };
  const std::optional<int> own = given_or(rank, method, "rank", 0);
  const std::optional<int> size = given_or(world_size, method, "world_size", 1);
  if (method.host.empty()) {
    complain("it names no host");
  }
  if (!method.path.empty()) {
    complain(fmt::format("\"{}\" stands behind the address", method.path));
  }
  if (!own) {
    complain("there is no rank");
  }
  if (!size) {
    complain("there is no world_size");
  } else if (*size == 0) {
    complain("a world_size of 0 leaves no rank");
  } else if (own && *own >= *size) {
    complain(fmt::format("rank {} is not below world_size {}", *own, *size));
  }
  for (const auto& [name, value] : method.query) {
    if (name != "rank" && name != "world_size") {
      complain(fmt::format("there is no option {}", name));
    }
  }
  if (!problems.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("init_method \"{}\": {}; give each process its rank and the world size, "
                    "in InitOptions or as tcp://10.0.0.1:29500?rank=0&world_size=4",
                    method.text,
                    problems));
  }
  return {.master_addr = method.host,
          .master_port = method.port.value_or(kDefaultMasterPort),
          .rank = own.value_or(0),
          .world_size = size.value_or(1)};
}

}  // namespace unisono::rendezvous
