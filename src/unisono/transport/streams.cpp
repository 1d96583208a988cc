#include "unisono/transport/streams.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/tcp_stream.h"
#include "unisono/transport/ucx/ucx_streams.h"

namespace unisono::transport {
namespace {

struct Kind {
  const char* name;
  MakeStream (*prepare)();
};

constexpr std::array kKinds = {
    Kind{"tcp", tcp::prepare_streams},
    Kind{"ucx", ucx::prepare_streams},
};

}  // namespace

MakeStream find_streams(std::string_view name) {
  std::string names;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) {
      return kind.prepare();
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("UNISONO_TRANSPORT=\"{}\": there are {}", name, names));
}

}  // namespace unisono::transport
