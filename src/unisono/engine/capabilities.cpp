#include "unisono/engine/capabilities.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {
namespace {

[[noreturn]] void refuse(std::string_view backend, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("backend {} {}", backend, problem));
}

}  // namespace

void check_capabilities(const Capabilities& capabilities,
                        std::string_view backend,
                        const Operation& operation) {
  const transport::Descriptor& descriptor = operation.descriptor;
  if (!capabilities.operations.has(descriptor.kind)) {
    refuse(backend,
           fmt::format("has no {}; {} it", to_string(descriptor.kind), capabilities.instead));
  }
  if (!transport::reduces(descriptor.kind)) {
    if (transport::has_elements(descriptor.kind) && !capabilities.dtypes.has(descriptor.dtype)) {
      refuse(backend,
             fmt::format("moves no {}; convert the elements, or {} it",
                         to_string(descriptor.dtype),
                         capabilities.instead));
    }
    return;
  }
  if (!capabilities.reduced_dtypes.has(descriptor.dtype)) {
    refuse(backend,
           fmt::format("reduces no {}; convert the elements (16-bit floats to f32), or {} it",
                       to_string(descriptor.dtype),
                       capabilities.instead));
  }
  if (!capabilities.reductions.has(descriptor.reduce)) {
    refuse(backend,
           fmt::format(
               "has no reduction {}; {} it", to_string(descriptor.reduce), capabilities.instead));
  }
  if (!capabilities.takes_algorithm && descriptor.algorithm != Algorithm::kAuto) {
    refuse(backend,
           fmt::format("chooses how it reduces by itself; leave out algorithm {}, or {} it",
                       to_string(descriptor.algorithm),
                       capabilities.instead));
  }
}

void check_passes_messages(const Capabilities& capabilities, std::string_view backend) {
  if (!capabilities.passes_messages) {
    refuse(backend, fmt::format("passes no messages; {} them", capabilities.instead));
  }
}

}  // namespace unisono::engine
