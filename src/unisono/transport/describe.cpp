#include "unisono/transport/describe.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {
namespace {

bool has_root(OperationKind kind) {
  return kind == OperationKind::kBroadcast || kind == OperationKind::kReduce ||
         kind == OperationKind::kGather || kind == OperationKind::kScatter;
}

bool has_elements(OperationKind kind) {
  return kind != OperationKind::kNone && kind != OperationKind::kBarrier &&
         kind != OperationKind::kMonitoredBarrier;
}

std::string describe_shape(const Descriptor& descriptor) {
  const char* const dtype = unisono::to_string(descriptor.dtype);
  if (descriptor.count == kUneven) {
    return fmt::format("{}[blocks of any size]", dtype);
  }
  const bool has_blocks = descriptor.kind != OperationKind::kAllReduce &&
                          descriptor.kind != OperationKind::kReduce && descriptor.detail != 0;
  return has_blocks
             ? fmt::format(
                   "{}[{}] in blocks {:08x}", dtype, descriptor.count, descriptor.detail >> 32)
             : fmt::format("{}[{}]", dtype, descriptor.count);
}

// "sum", "premul_sum 0.5", "user 1a2b3c4d".
std::string describe_reduction(const Descriptor& descriptor) {
  const char* const name = unisono::to_string(descriptor.reduce);
  const bool has_factor =
      descriptor.kind == OperationKind::kAllReduce || descriptor.kind == OperationKind::kReduce;
  if (descriptor.reduce == ReduceKind::kPremulSum && has_factor) {
    return fmt::format("{} {}", name, std::bit_cast<double>(descriptor.detail));
  }
  return descriptor.reduce == ReduceKind::kUser
             ? fmt::format("{} {:08x}", name, descriptor.detail >> 32)
             : name;
}

}  // namespace

std::string describe(const Descriptor& descriptor, std::uint64_t sequence) {
  std::string text = fmt::format("{} #{}", to_string(descriptor.kind), sequence);
  if (!has_elements(descriptor.kind)) {
    return text;
  }
  text += fmt::format(" ({}", describe_shape(descriptor));
  if (reduces(descriptor.kind)) {
    text += fmt::format(", {}", describe_reduction(descriptor));
  }
  if (has_root(descriptor.kind)) {
    text += fmt::format(", root {}", descriptor.root);
  }
  if (descriptor.algorithm != Algorithm::kAuto) {
    text += fmt::format(", {}", unisono::to_string(descriptor.algorithm));
  }
  return text + ")";
}

std::string describe(const Standing& standing) {
  if (standing.sequence > 0 && !standing.has_finished) {
    return fmt::format("is in {}", describe(standing.descriptor, standing.sequence));
  }
  const std::string refused =
      standing.refused.empty()
          ? ""
          : fmt::format(" but what it refused for wrong arguments: \"{}\"", standing.refused);
  if (standing.sequence == 0) {
    return fmt::format("has called nothing yet{}", refused);
  }
  return fmt::format("has finished {} and called nothing since{}",
                     describe(standing.descriptor, standing.sequence),
                     refused);
}

}  // namespace unisono::transport
